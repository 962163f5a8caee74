// sidebar.jsx: the list of conversations, the cluster's numbers and the settings.
import { totalsOf } from "./cluster/data.js";
import { bytes, count, percent } from "./format.js";
import { Icon } from "./icons.jsx";
import { MAX_CONVERSATIONS } from "./store.js";

function titleOf(conversation) {
  return conversation.messages[0].content.trim().split("\n", 1)[0];
}

function List({ chats, current, onOpen }) {
  const remove = (conversation) => {
    if (confirm(`Delete the conversation \u201c${titleOf(conversation).slice(0, 80)}\u201d?`)) chats.remove(conversation.id);
  };
  return (
    <nav class="list" aria-label="Conversations">
      <ul>
        {chats.conversations.map((c) => (
          <li key={c.id} class={c.id === current ? "current" : ""}>
            <a href={`#${c.id}`} aria-current={c.id === current ? "page" : undefined} onClick={onOpen} title={titleOf(c)} dir="auto">
              {titleOf(c)}
            </a>
            <button type="button" class="bare" aria-label={`Delete: ${titleOf(c)}`} onClick={() => remove(c)}>
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
      {chats.conversations.length >= MAX_CONVERSATIONS && (
        <p class="hint">Only {MAX_CONVERSATIONS} conversations are kept: a new one takes the place of the oldest.</p>
      )}
    </nav>
  );
}

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

function Cluster({ cluster }) {
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

const numbers = [
  { name: "temperature", label: "Temperature", min: 0, step: "any" },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: "any" },
  { name: "max_tokens", label: "Most tokens of an answer", min: 1, step: 1 },
  { name: "seed", label: "Seed", min: 0, step: 1 },
];

function Settings({ settings, onSettings }) {
  const set = (name) => (e) => onSettings({ ...settings, [name]: e.target.value });
  return (
    <div class="fields">
      <label>
        System prompt
        <textarea rows="3" dir="auto" value={settings.system ?? ""} onInput={set("system")} />
      </label>
      {numbers.map(({ name, label, ...rest }) => (
        <label key={name} class="number">
          {label}
          <input type="number" placeholder="default" value={settings[name] ?? ""} onInput={set(name)} {...rest} />
        </label>
      ))}
      <p class="hint">What is empty is left to the server. With a seed the same question gets the same answer.</p>
    </div>
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

export function Sidebar({ chats, current, live, onCluster, cluster, settings, onSettings, onOpen, open }) {
  return (
    <aside id="sidebar" class={open ? "open" : ""} aria-label="Conversations, cluster, settings">
      <a class="new" href="#" onClick={onOpen}>
        <Icon name="plus" /> New chat
      </a>
      {live && <ToCluster live={live} here={onCluster} onOpen={onOpen} />}
      <List chats={chats} current={current} onOpen={onOpen} />
      <details>
        <summary>Cluster{cluster?.n_ranks ? `: ${count(cluster.n_ranks, "rank")}` : ""}</summary>
        <Cluster cluster={cluster} />
      </details>
      <details>
        <summary>Settings</summary>
        <Settings settings={settings} onSettings={onSettings} />
      </details>
    </aside>
  );
}
