// key.jsx: asks for the API key when the server wants one.
import { useEffect, useRef, useState } from "preact/hooks";

/* refused: the server did not take the key that it was given. */
export function KeyDialog({ refused, onKey, onCancel }) {
  const dialog = useRef(null);
  const [key, setKey] = useState("");
  const [remember, setRemember] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const submit = (e) => {
    e.preventDefault();
    if (key.trim() !== "") onKey(key.trim(), remember);
  };
  return (
    <dialog ref={dialog} aria-labelledby="key-title" onCancel={onCancel}>
      <form onSubmit={submit}>
        <h2 id="key-title">The server asks for an API key</h2>
        <p>{refused ? "It does not take the one it was given." : "It is kept until this tab is closed, or longer if you want."}</p>
        <label>
          API key
          <input type="password" autocomplete="off" value={key} onInput={(e) => setKey(e.target.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={remember} onChange={(e) => setRemember(e.target.checked)} />
          <span>Remember it in this browser</span>
        </label>
        <div class="actions">
          <button type="button" onClick={onCancel}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Use this key
          </button>
        </div>
      </form>
    </dialog>
  );
}
