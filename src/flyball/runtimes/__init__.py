"""The agents' command lines: what their output means, who they are, how they go on.

One module per runtime, none knows another. ``registry.py`` tells them apart and imports one when it is
needed; ``port.py`` is what a runtime has to offer.
"""
