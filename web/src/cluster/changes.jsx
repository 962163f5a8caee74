// changes.jsx: the dialogs that change the cluster: put a model up, move it, take it down; with what a placement would give.
import { useEffect, useState } from "preact/hooks";
import { bytes, count } from "../format.js";
import { isHere, placesFor } from "./data.js";
import { Dialog } from "./dialog.jsx";
import { TITLE } from "./model.jsx";
import { tokens } from "./words.js";

const PORT = 8080; // of the first model that is put up
const IDLE = { "": "never", "10m": "after 10 minutes", "30m": "after half an hour", "2h": "after two hours", "12h": "after twelve hours" };

/* One of several things of which one may be chosen, a change's body each; onChoose is absent where there is nothing to choose. */
function Choice({ body, choice, onChoose, children }) {
  if (!onChoose) return children;
  const checked = JSON.stringify(choice) === JSON.stringify(body);
  return (
    <label class="pick">
      <input type="radio" name="choice" checked={checked} onChange={() => onChoose(body)} />
      <span>{children}</span>
    </label>
  );
}

/* holders: who has the model, of which one is to serve it; absent where it is up. */
function Candidate({ candidate: c, holders, choice, onChoose }) {
  const fits = c.fits !== false;
  const lacks = holders && !c.nodes?.some((name) => holders.includes(name));
  const may = fits && !c.chosen && !lacks && c.nodes?.length > 0;
  return (
    <tr class={fits ? "" : "unfit"}>
      <th scope="row">
        <Choice body={{ nodes: c.nodes, parallel: c.layout }} choice={choice} onChoose={may ? onChoose : null}>
          {c.layout}
          {c.chosen && <span class="tag">now</span>}
          {c.nodes?.length > 0 && <small>{`${c.nodes.join(", ")}${lacks ? ": the model is not there" : ""}`}</small>}
          {fits && c.wires_ms != null && <small>{`a token: ${c.reading_ms?.toPrecision(2)} ms reading, ${c.wires_ms.toPrecision(2)} ms wires`}</small>}
        </Choice>
      </th>
      {fits ? (
        <>
          <td class="n">{tokens(c.tokens_per_second)}</td>
          <td class="n">{tokens(c.prompt_per_second)}</td>
        </>
      ) : (
        <td colSpan="2">{c.sentence || "does not fit"}</td>
      )}
    </tr>
  );
}

function Candidates({ candidates, ...choosing }) {
  if (candidates.length === 0) return null;
  return (
    <table>
      <caption>What placements would give, as predicted</caption>
      <thead>
        <tr>
          <th scope="col">Placement</th>
          <th scope="col" class="n">
            Tokens/s
          </th>
          <th scope="col" class="n">
            Prompt/s
          </th>
        </tr>
      </thead>
      <tbody>
        {candidates.map((c) => (
          <Candidate key={`${c.layout} ${c.nodes}`} candidate={c} {...choosing} />
        ))}
      </tbody>
    </table>
  );
}

/* Asks what placements would give; the answer before stays until the next is there. Of null it asks nothing. */
function usePlan(watch, question) {
  const [plan, setPlan] = useState(null); // {candidates, sentence} or {error}
  const text = JSON.stringify(question);
  useEffect(() => {
    let old = false;
    if (question === null) return setPlan(null);
    watch.change("plan", question).then(
      (answer) => old || setPlan(answer),
      (e) => old || setPlan({ error: e.message }),
    );
    return () => (old = true);
  }, [text]);
  return plan;
}

function Plan({ plan, ...choosing }) {
  if (plan === null) return <p class="hint">Asking what placements would give&hellip;</p>;
  return (
    <div class="plan" aria-live="polite">
      {plan.error && <p class="note">{plan.error}</p>}
      {plan.sentence && <p class="note">{plan.sentence}</p>}
      <Candidates candidates={plan.candidates ?? []} {...choosing} />
    </div>
  );
}

/* left: the machines that are not to take part. */
function Among({ legend, names, left, onLeft }) {
  const toggle = (name) => onLeft(left.includes(name) ? left.filter((l) => l !== name) : [...left, name]);
  return (
    <fieldset>
      <legend>{legend}</legend>
      <div class="picks">
        {names.map((name) => (
          <label key={name} class="pick">
            <input type="checkbox" checked={!left.includes(name)} onChange={() => toggle(name)} />
            <span>{name}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

const namesOf = (cluster) => cluster.nodes.filter(isHere).map((n) => n.name);
const without = (names, left) => (left.length > 0 ? { nodes: names.filter((n) => !left.includes(n)).join(",") } : {});

function Move({ watch, cluster, deployment: d, onClose }) {
  const [left, setLeft] = useState([]);
  const [choice, setChoice] = useState(null); // what the change says beside the name
  const names = namesOf(cluster);
  const leave = (names) => (setLeft(names), setChoice(null));
  const choosing = { choice, onChoose: setChoice };
  const plan = usePlan(watch, { name: d.name, ...without(names, left) });
  const places = placesFor(d, cluster.nodes);
  return (
    <Dialog
      title={`Move ${d.name}`}
      action={choice?.nodes ? "Use this" : "Move"}
      ready={choice !== null}
      home={TITLE}
      onDo={() => watch.change("move", { name: d.name, ...choice })}
      onClose={onClose}
    >
      <Plan plan={plan} {...choosing} />
      {d.layout && (
        <Choice body={{ nodes: "auto" }} {...choosing}>
          whatever is fastest
          <small>ends the choice of {d.layout.nodes.join(", ")}</small>
        </Choice>
      )}
      {names.length > 1 && <Among legend="What would it give among these?" names={names} left={left} onLeft={leave} />}
      <fieldset>
        <legend>{d.node ? `Which machine is to answer in place of ${d.node}?` : "Which machine is to answer?"}</legend>
        {places.map((p) => (
          <Choice key={p.name} body={{ node: p.name }} {...choosing}>
            {p.name}
            {(p.able || p.why) && <small>{p.able ? "could take over now" : p.why}</small>}
          </Choice>
        ))}
        {places.length === 0 && <p class="hint">There is no other machine.</p>}
      </fieldset>
      <p class="hint">Answers under way go on with the same words.</p>
    </Dialog>
  );
}

function Down({ watch, deployment: d, onClose }) {
  const n = (d.requests?.running ?? 0) + (d.requests?.waiting ?? 0);
  return (
    <Dialog
      title={`Take ${d.name} down?`}
      action="Take down"
      danger
      home={TITLE}
      onDo={() => watch.change("down", { name: d.name })}
      onClose={onClose}
    >
      <p>
        {n > 0 ? `${count(n, "request")} to it ${n === 1 ? "is" : "are"} under way, and will end. ` : ""}
        Its files stay where they are.
      </p>
    </Dialog>
  );
}

function Up({ watch, cluster, onClose }) {
  const [model, setModel] = useState("");
  const [name, setName] = useState("");
  const [left, setLeft] = useState([]);
  const [layout, setLayout] = useState(null); // that is chosen; null: the fastest
  const [idle, setIdle] = useState("");
  const asksKey = cluster.local && !cluster.deployments.some((d) => d.port === PORT);
  const [key, setKey] = useState(() => (asksKey ? crypto.randomUUID().replaceAll("-", "") : ""));
  const access = key.trim() ? { api_key: key.trim() } : { insecure: true };
  const names = namesOf(cluster);
  const found = cluster.models.find((m) => m.name === model);
  const body = {
    model: model.trim(),
    ...(name.trim() ? { name: name.trim() } : {}),
    ...without(names, left),
    ...(layout ? { layout } : {}),
    ...(asksKey ? access : {}),
    ...(idle ? { options: { idle } } : {}),
  };
  const ready = body.model !== "" && left.length < names.length;
  const plan = usePlan(watch, found && ready ? { model: found.name, ...without(names, left) } : null);
  const choosing = { choice: layout, onChoose: setLayout };
  useEffect(() => setLayout(null), [model, left, plan]); // it was one of others
  return (
    <Dialog title="Put a model up" action="Put up" ready={ready} home={TITLE} onDo={() => watch.change("up", body)} onClose={onClose}>
      <label>
        Model
        <input list="cluster-models" autofocus autocomplete="off" spellcheck={false} value={model} onInput={(e) => setModel(e.target.value)} />
      </label>
      <datalist id="cluster-models">
        {cluster.models.map((m) => (
          <option key={m.name} value={m.name} />
        ))}
      </datalist>
      <p class="hint">
        {found ? `${bytes(found.bytes)}, on ${found.nodes.join(", ")}` : "The name of a model that a machine of the cluster has."}
      </p>
      <label>
        Name in the APIs
        <input placeholder="the model's" autocomplete="off" spellcheck={false} value={name} onInput={(e) => setName(e.target.value)} />
      </label>
      <label>
        Unloaded when nobody asks
        <select value={idle} onChange={(e) => setIdle(e.target.value)}>
          {Object.entries(IDLE).map(([time, text]) => (
            <option key={time} value={time}>
              {text}
            </option>
          ))}
        </select>
      </label>
      {asksKey && (
        <>
          <label>
            API key
            <input autocomplete="off" spellcheck={false} value={key} onInput={(e) => setKey(e.target.value)} />
          </label>
          <p class="hint">
            Every machine answers at port {PORT} for who shows it: keep it, it is not shown again. Without one, everybody who reaches a machine may ask.
          </p>
        </>
      )}
      <Among legend="Machines that may take part" names={names} left={left} onLeft={setLeft} />
      {found && ready && (
        <fieldset>
          <legend>Placement</legend>
          <Choice body={null} {...choosing}>
            whatever is fastest
            <small>of what fits, as the machines measure themselves</small>
          </Choice>
          <Plan plan={plan} holders={found.nodes} {...choosing} />
        </fieldset>
      )}
    </Dialog>
  );
}

/* Asks for what says that one may change the cluster; it is kept as long as the tab. */
function Token({ watch, onClose }) {
  const [token, setToken] = useState("");
  const use = async () => {
    watch.keepToken(token.trim());
    await watch.start();
    if (!watch.cluster?.may.manage) throw new Error("The server does not take this token.");
  };
  return (
    <Dialog title="Who may change the cluster" action="Use this token" ready={token.trim() !== ""} home={TITLE} onDo={use} onClose={onClose}>
      <label>
        Token that lockstep key --admin prints
        <input type="password" autofocus autocomplete="off" value={token} onInput={(e) => setToken(e.target.value)} />
      </label>
      <p class="hint">It is kept until this tab is closed.</p>
    </Dialog>
  );
}

/* asked: {what, name}, or null. */
export function Change({ asked, watch, cluster, onClose }) {
  if (asked === null) return null;
  if (asked.what === "token") return <Token watch={watch} onClose={onClose} />;
  if (asked.what === "up") return <Up watch={watch} cluster={cluster} onClose={onClose} />;
  const deployment = cluster.deployments.find((d) => d.name === asked.name);
  if (!deployment) return null;
  const Shown = asked.what === "move" ? Move : Down;
  return <Shown watch={watch} cluster={cluster} deployment={deployment} onClose={onClose} />;
}
