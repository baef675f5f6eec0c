// Numbers as people say them. Pure; the same words as the command line uses (core/pool/verdict.py, cli/ui/units.py).

/** A duration: "42 s", "3 min", "2 h", "2 d". */
export function span(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** A duration that is seen counting: "0:42", "3:07", "2:14:09", "3 d". */
export function running(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s >= 86400 * 2) return span(s);
  const two = (n) => String(n).padStart(2, "0");
  const minutes = Math.floor(s / 60) % 60;
  return s < 3600 ? `${minutes}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(minutes)}:${two(s % 60)}`;
}

/** "1 lease", "2 leases". */
export function counted(number, what) {
  return `${amount(number)} ${what}${number === 1 ? "" : "s"}`;
}

/** A quantity: 812, 1.5k, 200k, 3M. */
export function amount(number) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(number) >= size) {
      const unit = letter === "k" ? 1e3 : size;
      return `${trimmed(number / unit)}${letter}`;
    }
  }
  return trimmed(number);
}

function trimmed(number) {
  return String(Number(number.toFixed(Math.abs(number) < 100 ? 1 : 0)));
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The time of day on the reader's clock. */
export function timeOfDay(seconds) {
  return clockFormat.format(new Date(seconds * 1000));
}

/** The same, with the day where it was not today. */
export function clock(seconds) {
  const when = new Date(seconds * 1000);
  const time = timeOfDay(seconds);
  return when.toDateString() === new Date().toDateString() ? time : `${dayFormat.format(when)} ${time}`;
}

/** The name in "project/name". */
export function who(record) {
  return record.project ? `${record.project}/${record.name}` : record.name;
}
