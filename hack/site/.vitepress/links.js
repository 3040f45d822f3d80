import fs from 'node:fs'
import path from 'node:path'
import { root, sourceLink } from './pages.js'

// anchor returns the anchor of a heading as GitHub makes it, so that a link works in both places.
export function anchor(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{N}_ -]/gu, '').replaceAll(' ', '-')
}

// siteLinks is a plugin of markdown-it. Links to a folder with a README lead to that, as on GitHub, and links to files and folders that
// are no pages lead to the repository. Raw HTML is an error, because GitHub and the site show different parts of it.
export function siteLinks(markdown, { pages, repository }) {
  markdown.core.ruler.after('inline', 'site-links', ({ tokens, env }) => {
    const page = path.relative(root, env.realPath ?? env.path)
    for (const block of tokens) {
      const at = block.map ? `${page}, in the block that begins at line ${block.map[0] + 1}` : page
      for (const token of [block, ...block.children ?? []]) {
        if (token.type === 'link_open') token.attrSet('href', rewritten(token.attrGet('href'), page, at, pages, repository))
        if (isHTML(token)) throw new Error(`${at}: HTML, which GitHub and the site show differently: ${token.content.trim()}\nWrite Markdown, or put it into backquotes.`)
      }
    }
  })
}

// isHTML reports whether a token is HTML other than a comment.
function isHTML(token) {
  return token.type === 'html_inline' || (token.type === 'html_block' && !/^<!--[^]*-->\s*$/.test(token.content))
}

function rewritten(link, page, at, pages, repository) {
  if (/^([a-z][a-z0-9+.-]*:|\/\/|[#?])/i.test(link)) return link
  const [target, fragment = ''] = link.split(/(?=#)/)
  const file = path.join(path.dirname(page), target).replace(/\/$/, '')
  const to = [file, path.join(file, 'README.md')].find((name) => pages.includes(name))
  if (to) return sourceLink(path.relative(path.dirname(page), to)) + fragment
  const found = fs.statSync(path.join(root, file), { throwIfNoEntry: false })
  if (!found) throw new Error(`${at}: a link to ${link}, which is not there`)
  return `${repository}/${found.isDirectory() ? 'tree' : 'blob'}/main/${file}${fragment}`
}
