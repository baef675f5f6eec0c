#!/bin/sh
# ordinary_user.sh UID SHOWN COMMAND ...: as root, run a command as an ordinary user.
#
# Python may lie in a folder of root's own, such as /root/.pyenv. SHOWN is that folder, or empty. In a mount
# namespace of its own the user sees it, and nothing else of what lies beside it.
set -e
uid=$1 shown=$2
shift 2
if [ -n "$shown" ]; then
    top=/$(echo "$shown" | cut -d / -f 2)
    hold=$(mktemp -d)
    trap 'rmdir "$hold"' EXIT
    mount --make-rprivate /
    mount --rbind "$shown" "$hold"
    mount -t tmpfs -o mode=0755 tmpfs "$top"
    mkdir -p "$shown"
    mount --rbind "$hold" "$shown"
    umount -l "$hold"
    rmdir "$hold"
fi
exec setpriv --reuid="$uid" --regid="$uid" --clear-groups --bounding-set=-all --inh-caps=-all -- "$@"
