// The documentation site: the Markdown files at the root and in the folders of pages.js, as VitePress shows them (make site). pages.js says which pages
// there are, and makes the navigation from docs/README.md. links.js sends links to where they lead on the site.
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { anchor, siteLinks } from './links.js'
import { findPages, folders, forward, navigation, root, sourceLink } from './pages.js'

const out = path.join(root, 'bin', 'site')
const { HOMEPAGE: homepage, REPOSITORY: repository } = process.env
if (!homepage || !repository) throw new Error('HOMEPAGE or REPOSITORY is not set: run make site')
// Where the site is on its host. It begins and ends with a slash.
const base = path.posix.join(new URL(homepage).pathname, '/')

const pages = findPages()
const icon = 'icon.svg'

// The pages are not below this folder, and so not where Vite looks for the packages that they import.
const packagesOfThisFolder = {
  name: 'packages-of-this-folder',
  enforce: 'pre',
  resolveId(id, importer, options) {
    if (/^vue(\/|$)/.test(id) && importer?.endsWith('.md')) return this.resolve(id, fileURLToPath(import.meta.url), { ...options, skipSelf: true })
  },
}

export default defineConfig({
  title: 'nodekeeper',
  description: 'Keeps the labels of Kubernetes Nodes when their Node objects are deleted',
  srcDir: root,
  srcExclude: [`!(${folders.join('|')})/**/*.md`],
  rewrites: sourceLink,
  outDir: out,
  base,
  cacheDir: path.join(root, 'bin', 'site-cache'),
  // A link to a page that is not there fails the build. make site-check also looks at anchors.
  ignoreDeadLinks: false,
  markdown: {
    anchor: { slugify: anchor },
    config: (markdown) => markdown.use(siteLinks, { pages, repository }),
  },
  themeConfig: {
    sidebar: navigation(pages),
    outline: [2, 3],
    search: { provider: 'local' },
    editLink: { pattern: `${repository}/blob/main/:path`, text: 'Source of this page' },
    socialLinks: [{ icon: 'github', link: repository }],
  },
  vite: {
    plugins: [packagesOfThisFolder],
    build: { chunkSizeWarningLimit: 2000 }, // kB; the index of the search is one file
  },
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: base + icon }]],
  buildEnd: () => {
    forward(pages, base, out)
    fs.copyFileSync(path.join(root, 'internal', 'plugin', 'ui', 'assets', icon), path.join(out, icon)) // a release names it in the chart
  },
})
