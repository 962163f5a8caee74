// format.js: numbers as people read them.

export function bytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 999.5 && unit < units.length - 1) {
    n /= 1000;
    unit++;
  }
  return `${n >= 99.5 || unit === 0 ? Math.round(n) : n.toPrecision(2)} ${units[unit]}`;
}

export function seconds(s) {
  return s < 0.9995 ? `${Math.round(s * 1000)} ms` : `${s.toFixed(1)} s`;
}

export function rate(perSecond) {
  return perSecond >= 99.5 ? String(Math.round(perSecond)) : perSecond.toPrecision(2);
}

export function percent(share) {
  return share === null ? "\u2013" : `${Math.round(100 * share)} %`;
}

export function count(n, thing) {
  return `${n} ${thing}${n === 1 ? "" : "s"}`;
}

/* "14:02"; with the day if that is not today. */
export function timeOfDay(when, now = new Date()) {
  const time = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return when.toDateString() === now.toDateString() ? time : `${when.toLocaleDateString()} ${time}`;
}
