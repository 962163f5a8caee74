// answer.jsx: an answer: what the model thought, folded, then its text, and what became of it.
import { render as renderInto } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { CopyButton } from "./copy.jsx";
import { enrich } from "./extras.js";
import { count, rate, timeOfDay } from "./format.js";
import { blocksOf, render } from "./markdown.js";

const MOST_GROWING = 10000; // characters of a growing part that is coloured each time
const LOST = "A rank was lost: going on with those that are left.";

/* Puts the button into its own element beside each block of code. */
function addCopyButtons(root) {
  for (const pre of root.querySelectorAll("pre")) {
    const frame = document.createElement("div");
    const bar = document.createElement("div");
    frame.className = "code";
    bar.className = "code-bar";
    pre.replaceWith(frame);
    frame.append(bar, pre);
    pre.tabIndex = 0; // so that the keyboard can scroll it
    renderInto(
      <>
        <span>{pre.dataset.language}</span>
        <CopyButton text={() => pre.textContent} />
      </>,
      bar,
    );
  }
}

/* A table that is wider than the page is moved in a frame of its own, by the keyboard, too. */
function addScrolling(root) {
  for (const table of root.querySelectorAll("table")) {
    const frame = document.createElement("div");
    frame.className = "wide";
    frame.tabIndex = 0;
    frame.role = "group";
    frame.ariaLabel = "Table";
    table.replaceWith(frame);
    frame.append(table);
  }
}

/* Redrawn only when its own text changes: what is selected elsewhere stays so while the answer grows. */
function Block({ block, growing }) {
  const place = useRef(null);
  useLayoutEffect(() => {
    place.current.replaceChildren(render(block));
    addCopyButtons(place.current);
    addScrolling(place.current);
    if (!growing || block.raw.length < MOST_GROWING) enrich(place.current);
  }, [block.raw]);
  useLayoutEffect(() => {
    if (!growing) enrich(place.current);
  }, [growing]);
  return <div ref={place} dir="auto" />;
}

function Markdown({ text, growing }) {
  const blocks = useMemo(() => blocksOf(text), [text]);
  return (
    <div class="markdown">
      {blocks.map((block, i) => (
        <Block key={i} block={block} growing={growing && i === blocks.length - 1} />
      ))}
    </div>
  );
}

/* Who said it, how fast and when. */
function Facts({ answer }) {
  const { model, speed, tokens, at } = answer;
  const facts = [model, speed?.rate && `${rate(speed.rate)} tokens/s`, tokens && count(tokens, "token")].filter(Boolean);
  const when = at && new Date(at);
  return (
    <p class="told">
      {facts.map((fact) => (
        <span key={fact}>{fact}</span>
      ))}
      {when && (
        <time dateTime={when.toISOString()} title={when.toLocaleString()}>
          {timeOfDay(when)}
        </time>
      )}
    </p>
  );
}

/* children: the choice of its versions. */
export function Answer({ answer, run, children, onAgain, onContinue }) {
  const { content, reasoning, error, note } = answer;
  const waiting = run !== undefined && !content && !reasoning;
  return (
    <article class="answer" aria-label="Answer" aria-busy={run !== undefined}>
      {reasoning && (
        <details class="thinking">
          <summary>{run && !content ? "Thinking\u2026" : "Thinking"}</summary>
          <Markdown text={reasoning} growing={run !== undefined} />
        </details>
      )}
      {waiting && !run.lost && (
        <p class="waiting" role="img" aria-label="Waiting for the first token">
          <i />
          <i />
          <i />
        </p>
      )}
      <Markdown text={content} growing={run !== undefined} />
      {run?.lost && <p class="note lost">{run.lost === true ? LOST : run.lost}</p>}
      {note && <p class="note">{note}</p>}
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {!run && <Facts answer={answer} />}
      {!run && (
        <div class="actions">
          {children}
          {content && <CopyButton text={() => content} />}
          {onContinue && (
            <button type="button" class="quiet" onClick={onContinue}>
              Continue
            </button>
          )}
          {onAgain && (
            <button type="button" class="quiet" onClick={onAgain}>
              {error ? "Try again" : "Regenerate"}
            </button>
          )}
        </div>
      )}
    </article>
  );
}
