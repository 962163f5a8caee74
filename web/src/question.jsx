// question.jsx: a field for text that grows with it, where a question is written, and a question that was asked.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Files } from "./composer.jsx";
import { CopyButton } from "./copy.jsx";

/* Is the key a method of input's, which composes a character? Safari says so by 229 alone: with it the composition is over
 * before the key that ends it. */
const isComposers = (e) => e.isComposing || e.keyCode === 229;

/* Enter sends, Shift+Enter breaks the line. */
export function TextField({ value, onInput, onSend, focused, ...rest }) {
  const field = useRef(null);
  useLayoutEffect(() => {
    const { style } = field.current;
    style.height = "auto";
    style.height = `${field.current.scrollHeight}px`;
  }, [value]);
  useEffect(() => {
    if (focused) field.current.focus();
  }, [focused]);
  const onKeyDown = (e) => {
    if (e.key !== "Enter" || e.shiftKey || isComposers(e)) return;
    e.preventDefault();
    onSend();
  };
  return (
    <textarea
      ref={field}
      rows="1"
      dir="auto"
      value={value}
      onInput={(e) => onInput(e.target.value)}
      onKeyDown={onKeyDown}
      {...rest}
    />
  );
}

/* The text, and what can be done with it: onEdit, where it may be asked in other words. */
function Asked({ message, children, onEdit }) {
  return (
    <article class="question" aria-label="Question">
      <Files files={message.files} />
      {message.content && <p dir="auto">{message.content}</p>}
      <div class="actions">
        {children}
        <CopyButton text={() => message.content} />
        {onEdit && (
          <button type="button" class="quiet" onClick={onEdit}>
            Edit
          </button>
        )}
      </div>
    </article>
  );
}

/* children: the choice of its versions. */
export function Question({ message, children, onResend }) {
  const [draft, setDraft] = useState(null); // null while it is not edited
  if (draft === null || !onResend)
    return (
      <Asked message={message} onEdit={onResend && (() => setDraft(message.content))}>
        {children}
      </Asked>
    );
  const send = () => {
    if (draft.trim() === "" && !message.files) return;
    setDraft(null);
    onResend(draft);
  };
  return (
    <form
      class="question editing"
      onSubmit={(e) => {
        e.preventDefault();
        send();
      }}
      onKeyDown={(e) => e.key === "Escape" && !isComposers(e) && setDraft(null)}
    >
      <Files files={message.files} />
      <TextField aria-label="Edit the question" value={draft} onInput={setDraft} onSend={send} focused />
      <div class="actions">
        <button type="button" onClick={() => setDraft(null)}>
          Cancel
        </button>
        <button type="submit" class="primary">
          Ask again
        </button>
      </div>
    </form>
  );
}
