// icons.jsx: the few pictures of the page; what they mean is in the labels of their buttons.

const paths = {
  menu: "M3 5h14M3 10h14M3 15h14",
  plus: "M10 4v12M4 10h12",
  close: "M5 5l10 10M15 5L5 15",
  send: "M10 16V4M5 9l5-5 5 5",
  down: "M10 4v12M5 11l5 5 5-5",
  stop: "M6 6h8v8H6z",
  left: "M12 4l-6 6 6 6",
  right: "M8 4l6 6-6 6",
  more: "M4.5 10h.01M10 10h.01M15.5 10h.01",
  file: "M5 3h6l4 4v10H5zM11 3v4h4",
  attach: "M15 9l-5.5 5.5a3 3 0 0 1-4.3-4.3L11 4.5a2 2 0 0 1 2.9 2.9l-5.6 5.5a.8.8 0 0 1-1.2-1.2L12 6.8",
  sliders: "M3 6h7M14 6h3M3 14h3M10 14h7M12 4v4M8 12v4",
};

export function Icon({ name }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
