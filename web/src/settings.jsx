// settings.jsx: how the page looks, what every conversation begins with, how answers are sampled, and the key.
import { useEffect, useRef } from "preact/hooks";
import { Icon } from "./icons.jsx";
import { EFFORTS, GROUPS, withoutSampling } from "./samplers.js";

const THEMES = [
  ["", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

/* The document shows it; "" is what the system wants. */
export function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function Choice({ legend, name, options, value, onChange }) {
  return (
    <fieldset class="options">
      <legend>{legend}</legend>
      <div>
        {options.map(([option, label]) => (
          <label key={option}>
            <input type="radio" name={name} value={option} checked={(value ?? "") === option} onChange={() => onChange(option)} />
            <span>{label}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

function NumberField({ sampler, value, onInput }) {
  const { name, label, hint, ...range } = sampler;
  return (
    <label class="number">
      <span>
        {label}
        {hint && <small>{hint}</small>}
      </span>
      <input type="number" inputMode="decimal" placeholder="default" value={value ?? ""} onInput={(e) => onInput(e.target.value)} {...range} />
    </label>
  );
}

export function Settings({ settings, onSettings, hasKey, onForget, onClose }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const set = (name, value) => onSettings({ ...settings, [name]: value });
  const onBackdrop = (e) => e.target === dialog.current && dialog.current.close();
  return (
    <dialog ref={dialog} class="settings" aria-labelledby="settings-title" onClose={onClose} onClick={onBackdrop}>
      <div class="sheet">
        <div class="title-bar">
          <h2 id="settings-title">Settings</h2>
          <button type="button" class="bare" aria-label="Close the settings" onClick={() => dialog.current.close()}>
            <Icon name="close" />
          </button>
        </div>
        <Choice legend="Theme" name="theme" options={THEMES} value={settings.theme} onChange={(v) => set("theme", v)} />
        <Choice legend="Thinking" name="thinking" options={EFFORTS} value={settings.thinking} onChange={(v) => set("thinking", v)} />
        <label class="block">
          System prompt
          <textarea rows="4" dir="auto" value={settings.system ?? ""} onInput={(e) => set("system", e.target.value)} />
        </label>
        {GROUPS.map(({ title, samplers }, i) => (
          <details key={title} open={i === 0 || samplers.some(({ name }) => settings[name])}>
            <summary>{title}</summary>
            <div class="numbers">
              {samplers.map((sampler) => (
                <NumberField key={sampler.name} sampler={sampler} value={settings[sampler.name]} onInput={(v) => set(sampler.name, v)} />
              ))}
            </div>
          </details>
        ))}
        <p class="hint">What is empty is left to the server.</p>
        <div class="actions">
          <button type="button" onClick={() => onSettings(withoutSampling(settings))}>
            Back to the server's defaults
          </button>
          {hasKey && (
            <button type="button" onClick={onForget}>
              Forget the API key
            </button>
          )}
        </div>
      </div>
    </dialog>
  );
}
