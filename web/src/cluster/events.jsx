// events.jsx: what happened in the cluster, newest first; and, for who cannot see it, aloud.
import { useEffect, useRef, useState } from "preact/hooks";
import { clock } from "./words.js";

const FIRST = 8;
const QUIET_MS = 3000;

export function Events({ cluster }) {
  const [all, setAll] = useState(false);
  const { events } = cluster;
  return (
    <section class="panel events" aria-labelledby="events-title">
      <div class="panel-head">
        <h2 id="events-title">Events</h2>
        {events.length > FIRST && (
          <button type="button" class="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Fewer" : `All ${events.length}`}
          </button>
        )}
      </div>
      {events.length === 0 && <p class="hint">Nothing has happened yet.</p>}
      <ol>
        {events.slice(0, all ? undefined : FIRST).map((e) => (
          <li key={`${e.time} ${e.kind} ${e.node} ${e.model}`} class={e.kind}>
            <time dateTime={new Date(e.time * 1000).toISOString()}>{clock(e.time, cluster.time)}</time>
            <span>{e.sentence}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/* Says news politely, and what comes soon after the last in one piece. */
export function Voice({ news }) {
  const [said, say] = useState("");
  const waiting = useRef([]);
  const timer = useRef(null);
  useEffect(() => {
    waiting.current.push(...news.map((e) => e.sentence));
    if (waiting.current.length === 0 || timer.current !== null) return;
    say(waiting.current.splice(0).join(". "));
    timer.current = setTimeout(() => {
      timer.current = null;
      if (waiting.current.length > 0) say(waiting.current.splice(0).join(". "));
    }, QUIET_MS);
  }, [news]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <p class="unseen" aria-live="polite">
      {said}
    </p>
  );
}
