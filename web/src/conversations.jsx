// conversations.jsx: the list of conversations: found, renamed, exported, imported and deleted.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { fileName, fromJson, mentions, toJson, toMarkdown } from "./exchange.js";
import { count } from "./format.js";
import { Icon } from "./icons.jsx";
import { MAX_CONVERSATIONS } from "./store.js";
import { titleOf } from "./tree.js";

function save(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

function Rename({ title, onDone }) {
  const field = useRef(null);
  const [name, setName] = useState(title);
  useEffect(() => field.current.select(), []);
  const onKeyDown = (e) => {
    if (e.key !== "Escape") return;
    e.stopPropagation();
    onDone(null);
  };
  const submit = (e) => {
    e.preventDefault();
    onDone(name);
  };
  return (
    <form class="rename" onSubmit={submit} onKeyDown={onKeyDown}>
      <input ref={field} aria-label="Name of the conversation" dir="auto" value={name} onInput={(e) => setName(e.target.value)} />
      <button type="submit" class="quiet">
        Save
      </button>
    </form>
  );
}

/* What can be done with one; below it in the list. */
function Actions({ id, chats, conversation, onRename, onDone }) {
  const title = titleOf(conversation);
  const remove = () => {
    if (!confirm(`Delete the conversation \u201c${title.slice(0, 80)}\u201d?`)) return;
    document.querySelector("aside .new").focus(); // what had the keyboard's focus goes
    chats.remove(conversation.id);
  };
  const actions = [
    ["Rename", onRename],
    ["Save as Markdown", () => save(fileName(conversation, "md"), toMarkdown(conversation), "text/markdown")],
    ["Save as JSON", () => save(fileName(conversation, "json"), toJson([conversation]), "application/json")],
    ["Delete", remove],
  ];
  const act = (action) => {
    if (action !== remove) onDone(); // where it stays
    action();
  };
  return (
    <div class="row-actions" id={id} role="group" aria-label={`Actions: ${title}`}>
      {actions.map(([label, action]) => (
        <button key={label} type="button" class="quiet" onClick={() => act(action)}>
          {label}
        </button>
      ))}
    </div>
  );
}

function State({ chats, id, current }) {
  if (chats.runs.has(id)) return <span class="dot busy" role="img" aria-label="is being answered" title="is being answered" />;
  if (chats.unseen.has(id) && !current) return <span class="dot" role="img" aria-label="has a new answer" title="has a new answer" />;
  return null;
}

function Row({ chats, conversation, current, onOpen }) {
  const { id } = conversation;
  const title = titleOf(conversation);
  const [mode, setMode] = useState(""); // "actions", "rename"
  const more = useRef(null);
  const back = useRef(false); // the keyboard's focus goes to the button again
  useLayoutEffect(() => {
    if (back.current && mode === "") more.current.focus();
    back.current = mode !== "";
  }, [mode]);
  const rename = (name) => {
    setMode("");
    if (name !== null) chats.rename(id, name);
  };
  const onKeyDown = (e) => {
    if (e.key !== "Escape" || mode === "") return;
    e.stopPropagation();
    setMode("");
  };
  if (mode === "rename")
    return (
      <li class={current ? "current" : ""}>
        <Rename title={title} onDone={rename} />
      </li>
    );
  return (
    <li class={current ? "current" : ""} onKeyDown={onKeyDown}>
      <div class="row">
        <a href={`#${id}`} aria-current={current ? "page" : undefined} onClick={onOpen} title={title} dir="auto">
          {title}
        </a>
        <State chats={chats} id={id} current={current} />
        <button
          ref={more}
          type="button"
          class="bare more"
          aria-label={`More: ${title}`}
          aria-expanded={mode !== ""}
          aria-controls={mode ? `actions-${id}` : undefined}
          onClick={() => setMode(mode ? "" : "actions")}
        >
          <Icon name="more" />
        </button>
      </div>
      {mode === "actions" && (
        <Actions
          id={`actions-${id}`}
          chats={chats}
          conversation={conversation}
          onRename={() => setMode("rename")}
          onDone={() => setMode("")}
        />
      )}
    </li>
  );
}

/* Out of the page and into it again. */
export function Exchange({ chats }) {
  const input = useRef(null);
  const [said, say] = useState("");
  const read = async ({ target }) => {
    const [file] = target.files;
    target.value = "";
    try {
      say(`${count(chats.import(fromJson(await file.text())), "conversation")} imported.`);
    } catch (e) {
      say(e.message);
    }
  };
  const saveAll = () => save("lockstep-conversations.json", toJson(chats.conversations), "application/json");
  return (
    <div class="exchange">
      <button type="button" class="quiet" onClick={() => input.current.click()}>
        Import
      </button>
      <input ref={input} type="file" accept=".json,application/json" hidden aria-label="File of conversations" onChange={read} />
      {chats.conversations.length > 0 && (
        <button type="button" class="quiet" onClick={saveAll}>
          Export all
        </button>
      )}
      <span class="hint" role="status">
        {said}
      </span>
    </div>
  );
}

export function List({ chats, current, onOpen }) {
  const [wanted, setWanted] = useState("");
  const found = chats.conversations.filter((c) => mentions(c, wanted));
  return (
    <>
      {chats.conversations.length > 0 && (
        <input
          type="search"
          class="search"
          aria-label="Search in conversations"
          placeholder="Search"
          value={wanted}
          onInput={(e) => setWanted(e.target.value)}
        />
      )}
      <nav class="list" aria-label="Conversations">
        <ul>
          {found.map((c) => (
            <Row key={c.id} chats={chats} conversation={c} current={c.id === current} onOpen={onOpen} />
          ))}
        </ul>
        {found.length === 0 && wanted !== "" && (
          <p class="hint" role="status">
            No conversation has this text.
          </p>
        )}
        {chats.conversations.length >= MAX_CONVERSATIONS && (
          <p class="hint">Only {MAX_CONVERSATIONS} conversations are kept: a new one takes the place of the oldest.</p>
        )}
      </nav>
      <Exchange chats={chats} />
    </>
  );
}
