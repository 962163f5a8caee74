// app.jsx: the page as a whole: what is where, which conversation is open, who needs the key.
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { chatRequest, streamChat } from "./api.js";
import { isServing } from "./cluster/data.js";
import { ClusterView, useCluster } from "./cluster/view.jsx";
import { Chats, NO_ROOM, speedOf } from "./chats.js";
import { Composer } from "./composer.jsx";
import { Conversation } from "./conversation.jsx";
import { count, rate, seconds } from "./format.js";
import { Icon } from "./icons.jsx";
import { KeyDialog } from "./key.jsx";
import { applyTheme, Settings } from "./settings.jsx";
import { Sidebar } from "./sidebar.jsx";
import { Watch } from "./status.js";
import { keep, loadSettings, openStorage, saveSettings } from "./store.js";
import { titleOf } from "./tree.js";

const KEY = "lockstep.key";
const TOKEN = "lockstep.token"; // of who may change the cluster
const CLUSTER = "cluster"; // where in the page it is
const storage = openStorage("localStorage");
const session = openStorage("sessionStorage");
const keyOf = () => session.getItem(KEY) ?? storage.getItem(KEY) ?? "";

/* Redraws the page, once a frame however often it is called. */
function useRedraw() {
  const [, redraw] = useReducer((n) => n + 1, 0);
  return useMemo(() => {
    let due = false;
    return () => {
      if (due) return;
      due = true;
      requestAnimationFrame(() => {
        due = false;
        redraw();
      });
    };
  }, []);
}

function useHash() {
  const [hash, setHash] = useState(location.hash.slice(1));
  useEffect(() => {
    const changed = () => setHash(location.hash.slice(1));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

/* Is the cluster what an empty page shows? When no model serves, and before anybody has chatted, where there are machines to show. */
function isHome(cluster, chats) {
  if (cluster === null) return false;
  return !cluster.deployments.some(isServing) || (chats.conversations.length === 0 && cluster.nodes.length > 1);
}

function Status({ watch, speed, onModel }) {
  const { state, why } = watch.health;
  const facts = [watch.cluster?.n_ranks && count(watch.cluster.n_ranks, "rank")];
  if (speed?.rate) facts.push(`${rate(speed.rate)} tokens/s`);
  if (speed) facts.push(`first token after ${seconds(speed.first_s)}`);
  return (
    <div class="status">
      {watch.models.length > 1 ? (
        <select aria-label="Model" value={watch.model} onChange={(e) => onModel(e.target.value)}>
          {watch.models.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      ) : (
        <strong>{watch.models[0] ?? "lockstep"}</strong>
      )}
      <span class={`state ${state}`} role="status">
        {why ? `${state}: ${why}` : state}
      </span>
      {facts.filter(Boolean).map((fact) => (
        <span key={fact}>{fact}</span>
      ))}
    </div>
  );
}

/* The two that live as long as the page, and the key they use. */
function useServer(settings, redraw, onDenied) {
  return useMemo(() => {
    const ask = (messages, signal, continuing) =>
      streamChat(chatRequest(messages, settings.current, watch.model, continuing), keyOf(), signal);
    const chats = new Chats({ storage, ask, changed: redraw, denied: (id) => onDenied(id) });
    const changed = (state) => (state === "recovering" ? chats.markLost() : redraw());
    const wanted = () => settings.current.model;
    const watch = new Watch({ key: keyOf, wanted, changed, denied: () => onDenied(null) });
    return { chats, watch };
  }, []);
}

export function App() {
  const redraw = useRedraw();
  const id = useHash();
  const [settings, setSettings] = useState(() => loadSettings(storage));
  const [drawer, setDrawer] = useState(false); // the sidebar, where it is folded away
  const [adjusting, setAdjusting] = useState(false); // the settings are open
  const [denied, setDenied] = useState(null); // {id, refused}: who asks for a key: a conversation, or null
  const latest = useRef(settings);
  latest.current = settings;
  const onDenied = (id) => setDenied((d) => ({ id: id ?? d?.id ?? null, refused: keyOf() !== "" }));
  const { chats, watch } = useServer(latest, redraw, onDenied);
  const isEmpty = (cluster) => id === "" && (isHome(cluster, chats) || !["ok", "asking"].includes(watch.health.state));
  const live = useCluster(
    {
      key: keyOf,
      token: () => session.getItem(TOKEN) ?? "",
      keepToken: (token) => keep(session, TOKEN, token),
      changed: redraw,
      denied: () => onDenied(null),
    },
    (cluster) => id === CLUSTER || isEmpty(cluster),
  );
  const isLocal = live.cluster?.local === true; // the page of a node's own machine, where no model answers
  const isBare = id === CLUSTER || (id === "" && isLocal); // nothing but the cluster
  const showsCluster = isBare || (id === "" && isHome(live.cluster, chats));
  const conversation = chats.get(id);
  const run = chats.runs.get(id);
  const speed = run ? speedOf(run) : conversation && chats.shown(id).at(-1).speed;
  chats.see(id);

  const title = conversation ? `${titleOf(conversation)} \u2013 lockstep` : "lockstep";
  useEffect(() => {
    document.title = title;
  }, [title]);
  useLayoutEffect(() => applyTheme(settings.theme), [settings.theme]);
  useEffect(() => {
    const look = () => !document.hidden && watch.start();
    const elsewhere = () => chats.reload();
    const leave = () => chats.leave();
    watch.start();
    document.addEventListener("visibilitychange", look);
    addEventListener("storage", elsewhere);
    addEventListener("pagehide", leave);
  }, []);

  const forgetKey = () => {
    session.removeItem(KEY);
    storage.removeItem(KEY);
    redraw();
  };
  const useKey = (key, remember) => {
    forgetKey();
    keep(remember ? storage : session, KEY, key);
    setDenied(null);
    watch.start();
    live.start();
    if (denied.id !== null && chats.get(denied.id)) chats.again(denied.id);
  };
  const changeSettings = (changed) => {
    setSettings(changed);
    saveSettings(storage, changed);
  };
  const changeModel = (model) => {
    latest.current = { ...settings, model }; // what the poll goes by
    changeSettings(latest.current);
    watch.start();
  };
  return (
    <div class="page" onKeyDown={(e) => e.key === "Escape" && setDrawer(false)}>
      <Sidebar
        chats={chats}
        current={conversation?.id}
        live={live.cluster}
        onCluster={id === CLUSTER}
        cluster={watch.cluster}
        onSettings={() => setAdjusting(true)}
        onOpen={() => setDrawer(false)}
        open={drawer}
      />
      {drawer && <div class="shade" onClick={() => setDrawer(false)} />}
      <main>
        <header>
          <button
            type="button"
            class="bare menu"
            aria-label="Conversations and settings"
            aria-expanded={drawer}
            aria-controls="sidebar"
            onClick={() => setDrawer(!drawer)}
          >
            <Icon name="menu" />
          </button>
          {isBare ? <h1 class="title">Cluster</h1> : <Status watch={watch} speed={speed} onModel={changeModel} />}
        </header>
        {showsCluster ? (
          <ClusterView watch={live} titled={isBare} />
        ) : conversation ? (
          <Conversation
            key={id}
            conversation={conversation}
            run={run}
            on={{
              again: (i) => chats.again(id, i),
              goOn: () => chats.goOn(id),
              edit: (i, question) => chats.edit(id, i, question),
              choose: (i) => chats.choose(id, i),
            }}
          />
        ) : (
          <div class="scroll empty">
            <h1>What would you like to know?</h1>
            <p>Questions and answers stay in this browser.</p>
          </div>
        )}
        {chats.unkept.has(id) && (
          <p class="column warning" role="alert">
            {NO_ROOM}
          </p>
        )}
        {!isBare && <Composer
          place={conversation?.id ?? "new"}
          running={run !== undefined}
          thinking={settings.thinking}
          onThinking={(thinking) => changeSettings({ ...settings, thinking })}
          onSend={(text, files) => (location.hash = chats.send(conversation?.id, text, files))}
          onStop={() => chats.stop(id)}
        />}
      </main>
      {adjusting && (
        <Settings
          settings={settings}
          onSettings={changeSettings}
          hasKey={keyOf() !== ""}
          onForget={forgetKey}
          onClose={() => setAdjusting(false)}
        />
      )}
      {denied && <KeyDialog refused={denied.refused} onKey={useKey} onCancel={() => setDenied(null)} />}
    </div>
  );
}
