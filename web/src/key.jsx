// key.jsx: asks for the API key when the server wants one.
import { useEffect, useRef, useState } from "preact/hooks";

/* refused: the server did not take the key that it was given. */
export function KeyDialog({ refused, onKey, onCancel }) {
  const dialog = useRef(null);
  const [key, setKey] = useState("");
  useEffect(() => dialog.current.showModal(), []);
  const submit = (e) => {
    e.preventDefault();
    if (key.trim() !== "") onKey(key.trim());
  };
  return (
    <dialog ref={dialog} aria-labelledby="key-title" onCancel={onCancel}>
      <form onSubmit={submit}>
        <h2 id="key-title">The server asks for an API key</h2>
        <p>{refused ? "It does not take the one it was given." : "It is kept until this tab is closed."}</p>
        <label>
          API key
          <input type="password" autocomplete="off" value={key} onInput={(e) => setKey(e.target.value)} />
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
