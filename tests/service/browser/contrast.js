// Every piece of text that can be seen and has too little contrast: WCAG 2.2, 1.4.3 (AA).
// Runs as the body of a function: returns a list of {text, ratio, colour, behind}.

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

/** Any colour that a style sheet can name, as [r, g, b, a]. */
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}

function over([r, g, b, a], below) {
  return [r, g, b].map((value, index) => value * a + below[index] * (1 - a));
}

function behind(element) {
  const layers = [];
  for (let each = element; each; each = each.parentElement) layers.push(rgba(getComputedStyle(each).backgroundColor));
  return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
}

function luminance(colour) {
  const [r, g, b] = colour.map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function ratio(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const text = walker.currentNode.textContent.trim();
  const visible = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  if (!text || !visible || element.closest(".unseen, .skip, script, noscript")) continue;
  const style = getComputedStyle(element);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const surface = behind(element);
  const colour = rgba(element instanceof SVGElement ? style.fill : style.color);
  const seen = ratio(over(colour, surface), surface);
  if (seen < (large ? 3 : 4.5)) found.push({ text, ratio: seen, colour, behind: surface });
}
return found;
