// sidebar.jsx: the list of conversations, the cluster's numbers and the way to the settings.
import { totalsOf } from "./cluster/data.js";
import { List } from "./conversations.jsx";
import { bytes, count, percent } from "./format.js";
import { Icon } from "./icons.jsx";

function Rank({ rank, bytes: size, kernels, fabric }) {
  const label = `Rank ${rank}: ${percent(kernels)} of the time in kernels, ${percent(fabric)} in the fabric`;
  return (
    <li>
      <div>
        <span>Rank {rank}</span>
        <span>{bytes(size)}</span>
      </div>
      <div class="bar" role="img" aria-label={label} title={label}>
        <i class="kernels" style={{ width: `${100 * (kernels ?? 0)}%` }} />
        <i class="fabric" style={{ width: `${100 * (fabric ?? 0)}%` }} />
      </div>
      <div class="shares">
        <span>{percent(kernels)} kernels</span>
        <span>{percent(fabric)} fabric</span>
      </div>
    </li>
  );
}

function Ranks({ cluster }) {
  if (cluster === null) return <p class="hint">The server does not tell its numbers now.</p>;
  const facts = [
    ["Requests", `${cluster.running} running, ${cluster.queued} queued`],
    ["KV pages", `${cluster.pagesUsed} of ${cluster.pages} used`],
    ["Recoveries", cluster.recoveries],
  ];
  return (
    <>
      <ul class="ranks">
        {cluster.ranks.map((r) => (
          <Rank key={r.rank} {...r} />
        ))}
      </ul>
      <dl>
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function ToCluster({ live, here, onOpen }) {
  const { machines, lost } = totalsOf(live);
  return (
    <a class="to-cluster" href="#cluster" aria-current={here ? "page" : undefined} onClick={onOpen}>
      <span>Cluster</span>
      <small class={lost > 0 ? "lost" : ""}>{lost > 0 ? `${lost} of ${machines} lost` : count(machines, "machine")}</small>
    </a>
  );
}

export function Sidebar({ chats, current, live, onCluster, cluster, onSettings, onOpen, open }) {
  return (
    <aside id="sidebar" class={open ? "open" : ""} aria-label="Conversations, cluster, settings">
      <a class="new" href="#" onClick={onOpen}>
        <Icon name="plus" /> New chat
      </a>
      {live && <ToCluster live={live} here={onCluster} onOpen={onOpen} />}
      <List chats={chats} current={current} onOpen={onOpen} />
      <details>
        <summary>This model{cluster?.n_ranks ? `: ${count(cluster.n_ranks, "rank")}` : ""}</summary>
        <Ranks cluster={cluster} />
      </details>
      <button type="button" class="to-settings" onClick={onSettings}>
        <Icon name="sliders" /> Settings
      </button>
    </aside>
  );
}
