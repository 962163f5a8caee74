// composer.jsx: where a question is written, with files and with how much the model is to think.
import { useEffect, useRef, useState } from "preact/hooks";
import { takeFiles } from "./files.js";
import { bytes } from "./format.js";
import { Icon } from "./icons.jsx";
import { TextField } from "./question.jsx";
import { EFFORTS } from "./samplers.js";

const HOVERS = matchMedia("(hover: hover)").matches;

/* The files of a question; onRemove where they may be taken away. */
export function Files({ files, onRemove }) {
  if (!files?.length) return null;
  return (
    <ul class="files" aria-label="Files">
      {files.map((file, i) => (
        <li key={i}>
          <Icon name="file" />
          <span class="name" title={file.name}>
            {file.name}
          </span>
          <span class="size">{bytes(file.size)}</span>
          {onRemove && (
            <button type="button" class="bare" aria-label={`Remove ${file.name}`} onClick={() => onRemove(i)}>
              <Icon name="close" />
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

/* {files, problems, add, ...}: what is attached, by drag anywhere in the page, by paste or by a button. */
function useFiles() {
  const [state, setState] = useState({ files: [], problems: [] });
  const [over, setOver] = useState(false);
  const latest = useRef(state);
  latest.current = state;
  const put = (next) => {
    latest.current = next;
    setState(next);
  };
  const add = async (list) => put(await takeFiles(latest.current.files, list));
  useEffect(() => {
    const has = (e) => e.dataTransfer?.types.includes("Files") && !document.querySelector("dialog[open]");
    const drag = (e) => {
      if (!has(e)) return;
      e.preventDefault();
      setOver(true);
    };
    const leave = (e) => e.relatedTarget === null && setOver(false);
    const drop = (e) => {
      setOver(false);
      if (!has(e)) return;
      e.preventDefault();
      add([...e.dataTransfer.files]);
    };
    const listeners = { dragover: drag, dragleave: leave, drop };
    for (const [name, listener] of Object.entries(listeners)) addEventListener(name, listener);
    return () => Object.entries(listeners).forEach(([name, listener]) => removeEventListener(name, listener));
  }, []);
  const onPaste = (e) => {
    if (e.clipboardData.files.length === 0) return;
    e.preventDefault();
    add([...e.clipboardData.files]);
  };
  const remove = (i) => put({ files: state.files.filter((_, k) => k !== i), problems: [] });
  return { ...state, over, add, onPaste, remove, clear: () => put({ files: [], problems: [] }) };
}

function AttachButton({ onFiles }) {
  const input = useRef(null);
  const chosen = ({ target }) => {
    onFiles([...target.files]);
    target.value = ""; // so that the same one may be chosen again
  };
  return (
    <>
      <button type="button" class="bare" aria-label="Attach text files" title="Attach text files" onClick={() => input.current.click()}>
        <Icon name="attach" />
      </button>
      <input ref={input} type="file" multiple hidden aria-label="Text files" onChange={chosen} />
    </>
  );
}

function Thinking({ value, onChange }) {
  return (
    <label class="thinking-choice">
      <span>Thinking</span>
      <select value={value ?? ""} onChange={(e) => onChange(e.target.value)}>
        {EFFORTS.map(([effort, label]) => (
          <option key={effort} value={effort}>
            {effort === "" ? "Default" : label}
          </option>
        ))}
      </select>
    </label>
  );
}

/* The keyboard's focus comes along to every conversation, but not where that would bring up one on the screen. */
export function Composer({ place, running, thinking, onThinking, onSend, onStop }) {
  const [text, setText] = useState("");
  const attached = useFiles();
  const nothing = text.trim() === "" && attached.files.length === 0;
  const send = () => {
    if (running || nothing) return;
    onSend(text, attached.files);
    setText("");
    attached.clear();
  };
  const submit = (e) => {
    e.preventDefault();
    send();
  };
  return (
    <form class="composer column" onSubmit={submit} onPaste={attached.onPaste}>
      {attached.over && <p class="drop">Drop text files here</p>}
      <Files files={attached.files} onRemove={attached.remove} />
      {attached.problems.map((sentence) => (
        <p key={sentence} class="warning" role="alert">
          {sentence}
        </p>
      ))}
      <TextField
        aria-label="Question"
        placeholder="Ask something"
        value={text}
        onInput={setText}
        onSend={send}
        focused={HOVERS && place}
      />
      <div class="tools">
        <AttachButton onFiles={attached.add} />
        <Thinking value={thinking} onChange={onThinking} />
        <span class="gap" />
        {running ? (
          <button type="button" class="primary round" aria-label="Stop" title="Stop" onClick={onStop}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="primary round" aria-label="Send" title="Send" disabled={nothing}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
