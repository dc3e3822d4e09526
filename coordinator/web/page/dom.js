// Elements out of values. Whatever comes from elsewhere becomes text, never markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.entries(value).forEach(([key, text]) => node.style.setProperty(key, text));
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Puts new children into a node if they are others than those it has, and keeps the focus where it was.
export function fill(node, ...children) {
  const next = document.createElement(node.tagName);
  next.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  if (next.innerHTML === node.innerHTML) return;
  const focused = node.contains(document.activeElement) ? document.activeElement.getAttribute('data-key') : null;
  node.replaceChildren(...next.childNodes);
  if (focused) node.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

// A command to copy.
export function command(text, what) {
  const button = el('button', {
    type: 'button',
    'data-key': `copy ${text}`,
    onclick: async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = 'copied';
      setTimeout(() => { button.textContent = 'copy'; }, 1500);
    },
  }, 'copy');
  return el('li', {}, el('code', {}, text), ' ', button, el('span', { class: 'quiet' }, ` ${what}`));
}

// What a shell takes as one word.
export const shellWord = (text) => (/^[\w.@:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
