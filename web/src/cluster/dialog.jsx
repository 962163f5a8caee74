// dialog.jsx: a question to whoever looks at the cluster: what is asked, what the server says to it, where the keyboard goes after it.
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

/* onDo() carries it out and may throw what the server says; the dialog closes when it did not. After it the keyboard is where it was,
 * or, if that is gone, at the element `home`. */
export function Dialog({ title, action, danger, ready = true, home, onDo, onClose, children }) {
  const dialog = useRef(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const id = useId();
  useLayoutEffect(() => {
    const shown = dialog.current;
    const before = document.activeElement;
    shown.showModal();
    return () => {
      shown.close(); // nothing else takes the focus before
      (before.isConnected ? before : document.getElementById(home))?.focus();
    };
  }, []);
  const submit = async (e) => {
    e.preventDefault();
    if (busy || !ready) return;
    setBusy(true);
    setError("");
    try {
      await onDo();
      onClose();
    } catch (e) {
      setBusy(false);
      setError(e.message);
    }
  };
  return (
    <dialog ref={dialog} class="ask" aria-labelledby={id} onCancel={onClose}>
      <form onSubmit={submit}>
        <h2 id={id}>{title}</h2>
        {children}
        {error && (
          <p class="error" role="alert">
            {error}
          </p>
        )}
        <div class="actions">
          <button type="button" onClick={onClose} autofocus={danger}>
            Cancel
          </button>
          <button type="submit" class={danger ? "primary danger" : "primary"} aria-disabled={busy || !ready}>
            {busy ? "One moment\u2026" : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
