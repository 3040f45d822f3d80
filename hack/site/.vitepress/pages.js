import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

// The root of the repository.
export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..')

// The index whose sections are the groups of the navigation. There is no second list of pages.
const index = 'docs/README.md'

// The folders that have pages: those of nodekeeper, and one for each of the other products.
export const folders = ['docs', 'sharding', 'placement']

// findPages returns the paths of the pages, from the root and with slashes: Markdown at the root and below the folders.
export function findPages() {
  const below = folders.flatMap((folder) => fs.readdirSync(path.join(root, folder), { recursive: true }).map((file) => `${folder}/${file}`))
  return fs.readdirSync(root).concat(below).filter((file) => file.endsWith('.md')).sort()
}

// navigation makes the groups from the sections of the index, with the pages that they link to in the order of the links, and from the
// pages at the root. What comes before the first section repeats some of the pages. It fails if there is a page to which no group leads.
export function navigation(pages) {
  const [preface, ...sections] = read(index).split(/^## /m)
    .map((text) => ({ text: text.split('\n', 1)[0], links: linksOf(index, text).filter(({ page }) => pages.includes(page) && page !== index) }))
  const listed = new Set([index, 'README.md', ...sections.flatMap(({ links }) => links.map(({ page }) => page))])
  const alone = preface.links.filter(({ page }) => !listed.has(page))
  for (const { page } of alone) listed.add(page)
  const items = (links) => links.map((link) => entry(link, pages, listed))
  const groups = [
    { text: titleOf(index), link: siteLink(index), items: items(alone) },
    ...sections.map(({ text, links }) => ({ text, collapsed: false, items: items(links) })),
  ]
  const others = pages.filter((page) => !listed.has(page))
  const missing = others.filter((page) => page.includes('/'))
  if (missing.length > 0) throw new Error(`no navigation leads to ${missing.join(', ')}: link it from a section of ${index}, or from the README of its folder`)
  return [...groups, { text: 'Project', collapsed: true, items: others.map((page) => ({ text: titleOf(page), link: siteLink(page) })) }]
}

// entry is an entry of the navigation. The README of a folder has the pages below that folder that no other entry has: first the ones that it
// links to, in that order.
function entry({ text, page, fragment }, pages, listed) {
  const shown = { text: text[0].toUpperCase() + text.slice(1), link: siteLink(page) + fragment }
  if (path.basename(page) !== 'README.md' || fragment) return shown
  const linked = linksOf(page, read(page)).map((link) => link.page)
  const below = new Set([...linked, ...pages].filter((other) => pages.includes(other) && other.startsWith(path.dirname(page) + '/') && !listed.has(other)))
  if (below.size === 0) return shown
  for (const other of below) listed.add(other)
  return { ...shown, collapsed: true, items: [...below].map((other) => ({ text: titleOf(other), link: siteLink(other) })) }
}

function read(page) {
  return fs.readFileSync(path.join(root, page), 'utf8')
}

function titleOf(page) {
  const title = read(page).match(/^# (.*)$/m)?.[1]
  if (!title) throw new Error(`${page} has no title: a line that begins with # and a space`)
  return title.replaceAll('`', '')
}

// linksOf returns the links of a text of a page, with the path that they lead to from the root.
function linksOf(page, text) {
  return [...text.matchAll(/(?<!!)\[([^\]]*)\]\(([^)#]*)(#[^)]*)?\)/g)].map(([, text, target, fragment = '']) => (
    { text: text.replaceAll('`', ''), page: target === '' ? page : path.join(path.dirname(page), target), fragment }))
}

// sourceLink returns what VitePress calls a page: the page of a folder is its README, as in the repository.
export function sourceLink(page) {
  return page.replace(/README\.md$/, 'index.md')
}

// siteLink returns where a page is on the site, from its root.
function siteLink(page) {
  return '/' + sourceLink(page).replace(/\.md$/, '.html')
}

// forward makes the path that a page has in the repository lead to the page. Alerts name it, for example. base is where the site is on its
// host.
export function forward(pages, base, out) {
  for (const page of pages) {
    const to = path.posix.join(base, siteLink(page))
    fs.mkdirSync(path.join(out, page), { recursive: true })
    fs.writeFileSync(path.join(out, page, 'index.html'), `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="1; url=${to}">
<title>${titleOf(page)}</title>
<script>location.replace(${JSON.stringify(to)} + location.hash)</script>
<a href="${to}">${titleOf(page)}</a>
</html>
`)
  }
}
