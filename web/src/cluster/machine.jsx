// machine.jsx: a card for each machine: what it is, what its memory is used for, what it does for each model.
import { bytes, count } from "../format.js";
import { barsOf, isHere, rolesOf, shareOf, stateOf } from "./data.js";
import { Transfer } from "./transfer.jsx";
import { duration } from "./words.js";

function Bar({ name, total, segments }) {
  const used = segments.filter((s) => s.part !== "free");
  const words = segments.map((s) => `${s.part} ${bytes(s.bytes)}`).join(", ");
  return (
    <div class="memory">
      <div class="memory-head">
        <span>{name}</span>
        <span>
          {bytes(used.reduce((a, s) => a + s.bytes, 0))} of {bytes(total)}
        </span>
      </div>
      <div class="stack" role="img" aria-label={`${name}: ${words}, of ${bytes(total)}`}>
        {used.map((s) => (
          <i key={s.part} class={s.part} style={{ width: `${100 * s.share}%` }} />
        ))}
      </div>
      <div class="parts" aria-hidden="true">
        {segments.map((s) => (
          <span key={s.part} class={s.part}>
            {s.part} {bytes(s.bytes)}
          </span>
        ))}
      </div>
    </div>
  );
}

function Serves({ name, node, deployment, workers }) {
  return (
    <li>
      <div class="share-head">
        <strong>{deployment.name}</strong>{" "}
        {deployment.node === name && <span class="tag">answers</span>}
      </div>
      {workers.map((w) => (
        <div key={w.rank} class="share">
          <span>
            rank {w.rank}
            {w.device ? ` on ${w.device}` : ""}
          </span>
          {shareOf(w, deployment).map((part) => (
            <span key={part}>{part}</span>
          ))}
        </div>
      ))}
    </li>
  );
}

function Card({ node, cluster }) {
  const roles = rolesOf(node, cluster.deployments);
  const { state, word } = stateOf(node, roles);
  const here = isHere(node);
  const facts = [
    node.processor,
    node.cores != null && count(node.cores, "core"),
    here && node.load != null && `load ${node.load.toFixed(1)}`,
    node.disk_free != null && `${bytes(node.disk_free)} free on disk`,
  ].filter(Boolean);
  return (
    <li class={`card ${state}`}>
      <div class="card-head">
        <h3>{node.name}</h3>
        {node.name === cluster.self && <span class="tag">you are here</span>}
        <span class={`mark ${state}`}>{!here && node.age_s != null ? `${word} ${duration(node.age_s)} ago` : word}</span>
      </div>
      <p class="facts">{facts.join(" \u00b7 ")}</p>
      {node.devices.map((d) => (
        <p key={d.name} class="facts">
          {d.name}
          {d.error ? `: ${d.error}` : ""}
          {d.memory_bytes ? ` \u00b7 ${bytes(d.memory_bytes)}${d.kind === "discrete" ? "" : " shared"}` : ""}
        </p>
      ))}
      {here && barsOf(node).map((b) => <Bar key={b.name} {...b} />)}
      <ul>
        {roles.serves.map((s) => (
          <Serves key={s.deployment.name} name={node.name} node={node} {...s} />
        ))}
        {node.downloads.map((d) => (
          <Transfer key={d.model} copy={d} what={`downloads ${d.model}`} />
        ))}
        {roles.standsBy.length > 0 && <li class="stands">stands by for {roles.standsBy.join(", ")}</li>}
        {roles.cannot.map((c) => (
          <li key={c.name} class="cannot">
            cannot stand in for {c.name}
            {c.sentence || c.reason ? `: ${c.sentence || c.reason}` : ""}
          </li>
        ))}
      </ul>
    </li>
  );
}

export function Cards({ cluster }) {
  return (
    <section aria-labelledby="machines-title">
      <h2 id="machines-title">Machines</h2>
      <ul class="cards">
        {cluster.nodes.map((node) => (
          <Card key={node.name} node={node} cluster={cluster} />
        ))}
      </ul>
    </section>
  );
}
