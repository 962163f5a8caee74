// words.js: numbers and states of a cluster as people read them.
import { bytes } from "../format.js";

export function duration(s) {
  if (s < 60) return `${Math.max(0, Math.round(s))} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function latency(us) {
  if (us == null) return null;
  return us < 999.5 ? `${us < 9.95 ? us.toFixed(1) : Math.round(us)} \u00b5s` : `${(us / 1000).toPrecision(2)} ms`;
}

export const bandwidth = (perSecond) => (perSecond == null ? null : `${bytes(perSecond)}/s`);

/* A rate of tokens: one digit after the point while it is small. */
export const tokens = (n) => (n == null ? "\u2013" : n >= 99.5 || n === 0 ? String(Math.round(n)) : n.toFixed(1));

export const percent = (share) => `${Math.round(100 * share)} %`;

/* The time of the day here, with the day before it if it is another than that of `now`. */
export function clock(time, now) {
  const [at, today] = [new Date(time * 1000), new Date(now * 1000)];
  const hour = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  if (at.toDateString() === today.toDateString()) return hour;
  return `${at.toLocaleDateString([], { day: "numeric", month: "short" })}, ${hour.slice(0, 5)}`;
}

export const stateWords = { listening: "serves", starting: "starts", waiting: "waits", stopping: "stops", failed: "failed", recovering: "recovers", asleep: "sleeps" };
