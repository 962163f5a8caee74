// graph.jsx: the machines as nodes of a graph, what joins them as its lines; and the same as a table.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { bytes, count } from "../format.js";
import { barsOf, isHere, pairsOf, rolesOf, stateOf } from "./data.js";
import { labelsOf, orderOf, placesOf } from "./layout.js";
import { bandwidth, duration, latency } from "./words.js";

function useWidth(place) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.floor(place.current.clientWidth));
    const observer = new ResizeObserver(measure);
    measure();
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

const best = (values, pick) => {
  const known = values.filter((v) => v != null);
  return known.length > 0 ? pick(...known) : null;
};

/* What a line says: its kind and latency, and what it carries now, of how much where there is room. */
function wordsOf(pair, narrow) {
  const kinds = [...new Set(pair.links.map((l) => l.kind))].filter(Boolean).join("+");
  const wait = latency(best(pair.links.map((l) => l.latency_us), Math.min));
  const most = bandwidth(best(pair.links.map((l) => l.bandwidth), Math.max));
  const now = bandwidth(pair.rate);
  const rate = narrow || most === null ? now : now === null ? most : `${now} of ${most}`;
  return { wire: [kinds, wait].filter(Boolean).join(" "), rate };
}

function Line({ pair, places, lit, dim }) {
  const [p, q] = [places.get(pair.a), places.get(pair.b)];
  const width = 1.25 + (pair.rate > 1e3 ? Math.min(3, Math.log10(pair.rate / 1e3) * 0.6) : 0);
  const state = lit ? " lit" : dim ? " dim" : pair.rate > 0 ? " busy" : "";
  return <line class={`wire${state}`} x1={p.x} y1={p.y} x2={q.x} y2={q.y} stroke-width={width} />;
}

function Machine({ node, place, layout, role, used, chosen, dim, onChoose }) {
  const { width, height } = layout.box;
  const what = !isHere(node) && node.age_s != null ? `${role.word} ${duration(node.age_s)}` : role.text;
  const short = role.state === "cannot" ? "cannot serve" : what.replace(/^serves /, "");
  const said = layout.narrow ? short : what;
  const keyed = (e) => {
    if (e.key !== "Enter" && e.key !== " ") return;
    e.preventDefault();
    onChoose();
  };
  return (
    <g
      class={`machine ${role.state}${chosen ? " chosen" : ""}${dim ? " dim" : ""}`}
      style={{ transform: `translate(${place.x - width / 2}px, ${place.y - height / 2}px)` }}
      role="button"
      tabindex="0"
      aria-pressed={chosen}
      aria-label={`${node.name} ${said}`}
      onClick={onChoose}
      onKeyDown={keyed}
    >
      <rect class="box" width={width} height={height} rx="8" />
      <circle class="dot" cx="12" cy={height / 2 - 9} r="4" />
      <text class="name" x="22" y={height / 2 - 5}>
        {node.name}{" "}
        <tspan class="what" x="10" y={height / 2 + 10}>
          {said}
        </tspan>
      </text>
      <rect class="gauge" x="10" y={height - 8} width={width - 20} height="3" rx="1.5" />
      {used > 0 && <rect class="gauge-used" x="10" y={height - 8} width={(width - 20) * used} height="3" rx="1.5" />}
    </g>
  );
}

function usedShare(node) {
  const segments = barsOf(node)[0]?.segments ?? [];
  return !isHere(node) ? 0 : segments.filter((s) => s.part !== "free").reduce((a, s) => a + s.share, 0);
}

function rolesIn(cluster) {
  return new Map(
    cluster.nodes.map((node) => {
      const roles = rolesOf(node, cluster.deployments);
      const { state, word } = stateOf(node, roles);
      return [node.name, { state, word, text: state === "serves" ? `serves ${count(roles.serves.length, "model")}` : word }];
    }),
  );
}

function Graph({ cluster, pairs, chosen, onChoose }) {
  const place = useRef(null);
  const width = useWidth(place);
  const names = cluster.nodes.map((n) => n.name).join("\n");
  const order = useMemo(() => orderOf(cluster.nodes.map((n) => n.name), pairs), [names, pairs.length > 0]);
  const layout = placesOf(order, pairs, width);
  const drawn = pairs.filter((p) => layout.places.has(p.a) && layout.places.has(p.b));
  const touches = (p) => p.a === chosen || p.b === chosen;
  const size = { width: layout.narrow ? 62 : 120, height: 32 };
  const shown = (chosen ? drawn.filter(touches) : drawn).toSorted((x, y) => (x.key < y.key ? -1 : 1)); // so that labels stay
  const labels = labelsOf(shown.map((p) => ({ ...size, key: p.key, from: p.a, to: p.b })), layout);
  const roles = rolesIn(cluster);
  const near = new Set(chosen ? [chosen, ...drawn.filter(touches).flatMap((p) => [p.a, p.b])] : []);
  return (
    <div ref={place} class="graph">
      {width > 0 && (
        <svg width={layout.width} height={layout.height} role="group" aria-label="Machines, and what joins them. The table says the same.">
          {drawn.map((p) => (
            <Line key={p.key} pair={p} places={layout.places} lit={chosen && touches(p)} dim={chosen && !touches(p)} />
          ))}
          {drawn.map((p) => {
            const at = labels.get(p.key);
            const words = wordsOf(p, layout.narrow);
            return (
              at && (
                <g key={p.key} class="label" aria-hidden="true" style={{ transform: `translate(${at.x}px, ${at.y}px)` }}>
                  <rect x={-size.width / 2} y="-15" width={size.width} height="30" rx="4" />
                  <text y={words.rate ? -2 : 4}>{words.wire}</text>
                  {words.rate && (
                    <text class="now" y="11">
                      {words.rate}
                    </text>
                  )}
                </g>
              )
            );
          })}
          {order.map((name) => {
            const node = cluster.nodes.find((n) => n.name === name);
            return (
              node && (
                <Machine
                  key={name}
                  node={node}
                  place={layout.places.get(name)}
                  layout={layout}
                  role={roles.get(name)}
                  used={usedShare(node)}
                  chosen={chosen === name}
                  dim={chosen && !near.has(name)}
                  onChoose={() => onChoose(chosen === name ? null : name)}
                />
              )
            );
          })}
        </svg>
      )}
    </div>
  );
}

const keyOf = (l) => `${l.model} ${l.ranks} ${l.a} ${l.b} ${l.kind}`;
const or = (text) => text ?? "\u2013";

function Table({ cluster, links }) {
  const roles = rolesIn(cluster);
  return (
    <div class="tables" role="region" aria-label="Tables" tabIndex="0">
      <table>
        <caption>Machines</caption>
        <thead>
          <tr>
            <th scope="col">Machine</th>
            <th scope="col">State</th>
            <th scope="col" class="n">
              Memory
            </th>
            <th scope="col" class="n">
              Free
            </th>
          </tr>
        </thead>
        <tbody>
          {cluster.nodes.map((n) => (
            <tr key={n.name}>
              <th scope="row">{n.name}</th>
              <td>{roles.get(n.name).text}</td>
              <td class="n">{n.memory == null ? "\u2013" : bytes(n.memory)}</td>
              <td class="n">{n.memory_free == null ? "\u2013" : bytes(n.memory_free)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <table>
        <caption>Links</caption>
        <thead>
          <tr>
            <th scope="col">Between</th>
            <th scope="col">Kind</th>
            <th scope="col" class="n">
              Latency
            </th>
            <th scope="col" class="n">
              Bandwidth
            </th>
            <th scope="col" class="n">
              Now
            </th>
            <th scope="col" class="n">
              So far
            </th>
          </tr>
        </thead>
        <tbody>
          {links.map((l) => (
            <tr key={keyOf(l)}>
              <th scope="row">
                {l.a} &ndash; {l.b} <small>{l.model}</small>
              </th>
              <td>{or(l.kind)}</td>
              <td class="n">{or(latency(l.latency_us))}</td>
              <td class="n">{or(bandwidth(l.bandwidth))}</td>
              <td class="n">{or(bandwidth(l.rate))}</td>
              <td class="n">{l.bytes == null ? "\u2013" : bytes(l.bytes)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {links.length === 0 && <p class="hint">No two machines share a model now.</p>}
    </div>
  );
}

/* What joins the machine that is chosen in the graph. */
function Chosen({ name, links }) {
  const own = links.filter((l) => l.a === name || l.b === name);
  return (
    <div class="chosen-links" role="status">
      <strong>{name}</strong>
      {own.length === 0 && <span>shares no model with another machine</span>}
      {own.map((l) => (
        <span key={keyOf(l)}>
          {l.a === name ? l.b : l.a}: {[l.kind, latency(l.latency_us), l.bandwidth == null ? null : `${bandwidth(l.bandwidth)} measured`].filter(Boolean).join(", ")}
          {own.some((o) => o !== l && o.a === l.a && o.b === l.b) ? ` (${l.model})` : ""}
        </span>
      ))}
    </div>
  );
}

export function Machines({ cluster }) {
  const [asTable, setAsTable] = useState(false);
  const [chosen, setChosen] = useState(null);
  const pairs = pairsOf(cluster.links);
  const exists = cluster.nodes.some((n) => n.name === chosen);
  return (
    <section class="panel" aria-labelledby="links-title">
      <div class="panel-head">
        <h2 id="links-title">Links</h2>
        <div class="choice" role="group" aria-label="Show as">
          <button type="button" aria-pressed={!asTable} onClick={() => setAsTable(false)}>
            Graph
          </button>
          <button type="button" aria-pressed={asTable} onClick={() => setAsTable(true)}>
            Table
          </button>
        </div>
      </div>
      {asTable ? (
        <Table cluster={cluster} links={cluster.links} />
      ) : (
        <Graph cluster={cluster} pairs={pairs} chosen={exists ? chosen : null} onChoose={setChosen} />
      )}
      {!asTable && exists && <Chosen name={chosen} links={cluster.links} />}
    </section>
  );
}
