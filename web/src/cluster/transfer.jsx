// transfer.jsx: a copy or a download that is under way.
import { bytes } from "../format.js";
import { leftOf } from "./data.js";
import { duration } from "./words.js";

export function Transfer({ copy, what }) {
  const left = leftOf(copy);
  const share = copy.total > 0 ? Math.min(1, copy.bytes / copy.total) : 0;
  const facts = [
    `${bytes(copy.bytes)} of ${bytes(copy.total)}`,
    copy.rate > 0 && `${bytes(copy.rate)}/s`,
    left != null && copy.rate > 0 && `${duration(left)} left`,
  ].filter(Boolean);
  return (
    <li class="copy">
      <span>{what}</span>
      <progress aria-label={what} value={share} />
      <span>{facts.join(" \u00b7 ")}</span>
    </li>
  );
}
