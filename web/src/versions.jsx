// versions.jsx: which of several answers, or of several wordings of a question, is shown.
import { Icon } from "./icons.jsx";
import { versionsOf } from "./tree.js";

/* of: "answer" or "question". Nothing where there is only one. */
export function Versions({ messages, at, of, onChoose }) {
  const versions = versionsOf(messages, at);
  const n = versions.indexOf(at);
  if (versions.length < 2) return null;
  return (
    <span class="versions" role="group" aria-label={`Versions of this ${of}`}>
      <button type="button" class="bare" aria-label={`Previous ${of}`} disabled={n === 0} onClick={() => onChoose(versions[n - 1])}>
        <Icon name="left" />
      </button>
      <span>
        {n + 1}/{versions.length}
      </span>
      <button
        type="button"
        class="bare"
        aria-label={`Next ${of}`}
        disabled={n === versions.length - 1}
        onClick={() => onChoose(versions[n + 1])}
      >
        <Icon name="right" />
      </button>
    </span>
  );
}
