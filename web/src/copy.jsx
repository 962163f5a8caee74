// copy.jsx: the button that copies a text. Browsers give pages the clipboard only on localhost and over HTTPS; the older
// way works everywhere.
import { useEffect, useState } from "preact/hooks";

const SAID_MS = 1500;

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

export function CopyButton({ text, label = "Copy" }) {
  const [said, say] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => say(""), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => say((await copyText(text())) ? "Copied" : "Not copied");
  return (
    <button type="button" class="quiet" onClick={copy}>
      {said || label}
    </button>
  );
}
