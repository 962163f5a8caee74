// samplers.js: the numbers that a request may say about sampling (docs/serve.md), as the settings show them.

const share = { min: 0, max: 1, step: "any" };
const whole = { min: 0, step: 1 };

export const GROUPS = [
  {
    title: "Sampling",
    samplers: [
      { name: "temperature", label: "Temperature", min: 0, max: 2, step: "any" },
      { name: "top_p", label: "Top-p", ...share },
      { name: "top_k", label: "Top-k", ...whole },
      { name: "min_p", label: "Min-p", ...share },
      { name: "seed", label: "Seed", ...whole, hint: "With a seed the same question gets the same answer." },
      { name: "max_tokens", label: "Most tokens of an answer", min: 1, step: 1 },
      { name: "min_tokens", label: "Fewest tokens of an answer", ...whole },
    ],
  },
  {
    title: "Rarer samplers",
    samplers: [
      { name: "typical_p", label: "Typical-p", ...share },
      { name: "top_n_sigma", label: "Top-n-sigma", min: -1, max: 1000, step: "any" },
      { name: "xtc_probability", label: "XTC probability", ...share },
      { name: "xtc_threshold", label: "XTC threshold", ...share },
    ],
  },
  {
    title: "Penalties",
    samplers: [
      { name: "repeat_penalty", label: "Repeat penalty", min: 0.01, max: 100, step: "any" },
      { name: "repeat_last_n", label: "Repeat last n tokens", min: -1, step: 1 },
      { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: "any" },
      { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: "any" },
      { name: "dry_multiplier", label: "DRY multiplier", min: 0, max: 100, step: "any" },
      { name: "dry_base", label: "DRY base", min: 1, max: 100, step: "any" },
      { name: "dry_allowed_length", label: "DRY allowed length", ...whole },
      { name: "dry_penalty_last_n", label: "DRY last n tokens", min: -1, step: 1 },
    ],
  },
];

const NAMES = GROUPS.flatMap(({ samplers }) => samplers.map(({ name }) => name));

export const EFFORTS = [
  ["", "As the model does"],
  ["none", "Off"],
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
];

/* The fields of a request. What is empty, or no number, is left to the server. */
export function samplingOf(settings) {
  const fields = {};
  for (const name of NAMES) {
    const text = String(settings[name] ?? "").trim();
    if (text !== "" && Number.isFinite(Number(text))) fields[name] = Number(text);
  }
  if (EFFORTS.some(([effort]) => effort && effort === settings.thinking)) fields.reasoning_effort = settings.thinking;
  return fields;
}

/* The settings without any of these. */
export function withoutSampling(settings) {
  return Object.fromEntries(Object.entries(settings).filter(([name]) => !NAMES.includes(name)));
}
