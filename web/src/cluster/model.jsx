// model.jsx: a row for each model that is up: how fast, how full, on which machines; and what may be done with it.
import { useLayoutEffect, useRef } from "preact/hooks";
import { isServing } from "./data.js";
import { Transfer } from "./transfer.jsx";
import { percent, stateWords, tokens } from "./words.js";

export const TITLE = "models-title"; // where the keyboard goes when a model is gone
const SPARK = { width: 84, height: 22 };

/* The last minute of a number, of which the greatest is the height. */
function Spark({ values }) {
  const most = Math.max(...values, 1e-9);
  const x = (i) => SPARK.width - (values.length - 1 - i) * (SPARK.width / 59);
  const y = (v) => 1 + (SPARK.height - 2) * (1 - v / most);
  const points = values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" width={SPARK.width} height={SPARK.height} aria-hidden="true">
      <line x1="0" y1={SPARK.height - 0.5} x2={SPARK.width} y2={SPARK.height - 0.5} />
      <polyline points={points} />
    </svg>
  );
}

function Number({ label, value, children }) {
  return (
    <div class="number-of">
      <dt>{label}</dt>
      <dd>
        <span>{value}</span>
        {children}
      </dd>
    </div>
  );
}

function Cache({ cache }) {
  const share = cache?.pages ? cache.used / cache.pages : null;
  return (
    <Number label="cache" value={share === null ? "\u2013" : percent(share)}>
      {share !== null && (
        <div class="stack" aria-hidden="true">
          <i class="cache" style={{ width: `${100 * share}%` }} />
        </div>
      )}
    </Number>
  );
}

function machinesOf(deployment, nodes) {
  return nodes.filter((n) => n.workers.some((w) => w.model === deployment.name)).map((n) => n.name);
}

function factsOf(d, cluster) {
  const on = machinesOf(d, cluster.nodes);
  const able = d.standby.filter((s) => !s.reason).map((s) => s.node);
  return [
    d.node && (on.length > 1 ? `${d.node} answers, on ${on.join(", ")}` : `on ${d.node}`),
    d.port && `port ${d.port}`,
    d.placement || d.parallel,
    d.layout && `chosen: ${d.layout.parallel === "auto" ? "" : `${d.layout.parallel} `}on ${d.layout.nodes.join(", ")}`,
    d.left_out && `${d.left_out} left out`,
    able.length > 0 && `${able.join(", ")} could take over`,
    d.absent.length > 0 && `without ${d.absent.join(", ")}`,
    ...d.silent.filter((s) => s.sentence).map((s) => `not at ${s.node}: ${s.sentence}`),
  ].filter(Boolean);
}

function Model({ deployment: d, cluster, history, onAsk }) {
  const serving = isServing(d);
  const place = useRef(null);
  useLayoutEffect(() => () => place.current?.contains(document.activeElement) && document.getElementById(TITLE)?.focus(), []);
  return (
    <li class="model" ref={place}>
      <div class="model-name">
        <h3>{d.name}</h3>
        <span class={`mark ${serving ? "serves" : d.state}`}>{stateWords[d.state] ?? d.state}</span>
      </div>
      <dl>
        <Number label="tokens/s" value={tokens(d.tokens_per_second)}>
          {serving && history && <Spark values={history} />}
        </Number>
        <Number label="prompt/s" value={tokens(d.prompt_per_second)} />
        <Number label="running" value={d.requests?.running ?? "\u2013"} />
        <Number label="waiting" value={d.requests?.waiting ?? "\u2013"} />
        <Cache cache={d.cache} />
      </dl>
      <p class="facts">{factsOf(d, cluster).join(" \u00b7 ")}</p>
      {d.sentence && <p class={`says ${d.state}`}>{d.sentence}</p>}
      {d.copies.length > 0 && (
        <ul>
          {d.copies.map((c) => (
            <Transfer key={c.to} copy={c} what={`${c.to} gets a copy${c.from ? ` from ${c.from}` : ""}`} />
          ))}
        </ul>
      )}
      {cluster.may.manage && (
        <div class="actions">
          {cluster.local && serving && (
            <a class="quiet" href={`http${d.tls ? "s" : ""}://127.0.0.1:${d.port}/`} aria-label={`Chat with ${d.name}`}>
              Chat
            </a>
          )}
          <button type="button" class="quiet" aria-label={`Move ${d.name}`} onClick={() => onAsk({ what: "move", name: d.name })}>
            Move
          </button>
          <button type="button" class="quiet" aria-label={`Take down ${d.name}`} onClick={() => onAsk({ what: "down", name: d.name })}>
            Take down
          </button>
        </div>
      )}
    </li>
  );
}

export function Models({ cluster, history, onAsk }) {
  const { deployments, may } = cluster;
  return (
    <section class="panel" aria-labelledby={TITLE}>
      <div class="panel-head">
        <h2 id={TITLE} tabIndex="-1">
          Models
        </h2>
        {may.manage && (
          <button type="button" onClick={() => onAsk({ what: "up" })}>
            Put a model up
          </button>
        )}
      </div>
      {!may.manage && may.sentence && (
        <p class="hint">
          {may.sentence}{" "}
          {cluster.isKeptUp && (
            <button type="button" class="quiet" onClick={() => onAsk({ what: "token" })}>
              I have the token
            </button>
          )}
        </p>
      )}
      {deployments.length === 0 && <p class="hint">No model is up{may.manage ? "" : ": lockstep up MODEL puts one up"}.</p>}
      <ul class="models">
        {deployments.map((d) => (
          <Model key={d.name} deployment={d} cluster={cluster} history={history.get(d.name)} onAsk={onAsk} />
        ))}
      </ul>
    </section>
  );
}
