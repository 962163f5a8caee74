// view.jsx: the cluster as a whole: a headline, the graph beside what happened, the models, the machines.
import { useEffect, useState } from "preact/hooks";
import { bytes } from "../format.js";
import { Cards } from "./machine.jsx";
import { Change } from "./changes.jsx";
import { totalsOf } from "./data.js";
import { Events, Voice } from "./events.jsx";
import { Machines } from "./graph.jsx";
import { Models } from "./model.jsx";
import { duration, tokens } from "./words.js";
import { ClusterWatch } from "./watch.js";

/* The watch, which asks while `shown` says so, and once when the page opens. */
export function useCluster(make, shown) {
  const [watch] = useState(() => new ClusterWatch(make));
  useEffect(() => {
    const look = () => !document.hidden && watch.start();
    watch.start();
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  const now = shown(watch.cluster);
  useEffect(() => watch.show(now), [now]);
  return watch;
}

function Headline({ cluster }) {
  const t = totalsOf(cluster);
  const facts = [
    [t.machines, t.machines === 1 ? "machine" : "machines", t.lost > 0 && `${t.lost} lost`, "lost"],
    [t.serving, t.serving === 1 ? "model serves" : "models serve", t.models > t.serving && `${t.models - t.serving} not`, "not"],
    [tokens(t.tokens), "tokens/s", t.running > 0 && `${t.running} running${t.waiting ? `, ${t.waiting} waiting` : ""}`],
    t.memory > 0 && [bytes(t.used), "used", `of ${bytes(t.memory)} memory`],
  ].filter(Boolean);
  return (
    <ul class="headline">
      {facts.map(([number, what, more, state]) => (
        <li key={what}>
          <strong>{number}</strong> <span>{what}</span>{" "}
          {more && <small class={state}>{more}</small>}
        </li>
      ))}
    </ul>
  );
}

/* titled: its title stands elsewhere. */
export function ClusterView({ watch, titled }) {
  const [asked, setAsked] = useState(null);
  const { cluster, trouble } = watch;
  if (cluster === null)
    return (
      <div class="scroll empty">
        <p role="status">{trouble || "Asking the server\u2026"}</p>
      </div>
    );
  const age = (performance.now() - watch.at) / 1000;
  return (
    <div class="scroll cluster">
      <div class="cluster-body">
        {!titled && <h1 class="unseen">Cluster</h1>}
        {trouble && (
          <p class="warning">
            <span role="status">{trouble}</span> What is shown is {duration(age)} old.
          </p>
        )}
        <Headline cluster={cluster} />
        <div class="top">
          <Machines cluster={cluster} />
          <Events cluster={cluster} />
        </div>
        <Models cluster={cluster} history={watch.history} onAsk={setAsked} />
        <Cards cluster={cluster} />
        <Voice news={watch.news} />
        <Change asked={asked} watch={watch} cluster={cluster} onClose={() => setAsked(null)} />
      </div>
    </div>
  );
}
