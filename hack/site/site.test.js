import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createMarkdownRenderer } from 'vitepress'
import { anchor, siteLinks } from './.vitepress/links.js'
import { findPages, navigation, root } from './.vitepress/pages.js'

const pages = findPages()

async function render(page, text) {
  const markdown = await createMarkdownRenderer(root, { anchor: { slugify: anchor }, config: (it) => it.use(siteLinks, { pages, repository: 'https://r' }) })
  return markdown.render(text, { path: `${root}/${page}`, relativePath: page })
}

test('headings have the anchors of GitHub', async () => {
  const html = await render('README.md', "# A `b/c` d-e\n\n## What's *this*, [then](RELEASE.md)?\n\n## What's this, then?\n\n## Über_uns  2.0\n")
  assert.deepEqual([...html.matchAll(/<h\d id="([^"]*)"/g)].map(([, id]) => id), ['a-bc-d-e', 'whats-this-then', 'whats-this-then-1', 'über_uns--20'])
})

test('links lead to pages and to the repository', async () => {
  for (const [link, want] of Object.entries({
    '../../README.md': '../../',
    '../faq.md#a': '../faq.html#a',
    '../cli': '../cli/',
    '../cli/': '../cli/',
    '../cli/README.md#b': '../cli/#b',
    '#here': '#here',
    '../../deploy': 'https://r/tree/main/deploy',
    '../../project.mk': 'https://r/blob/main/project.mk',
    'https://example.com/': 'https://example.com/',
    '//example.com/a': '//example.com/a',
  })) {
    const [, href] = (await render('docs/how-to/install.md', `[x](${link})`)).match(/href="([^"]*)"/)
    assert.equal(href.replace(/^\.\//, ''), want, link)
  }
  await assert.rejects(render('docs/how-to/install.md', '[x](gone.md)'), /install.md, in the block that begins at line 1: a link to gone.md, which is not there/)
})

test('HTML is an error, and a comment is none', async () => {
  await assert.rejects(render('README.md', '<details>\n'), /README.md, in the block that begins at line 1: HTML, .*: <details>/)
  await assert.rejects(render('README.md', 'a <br> b\n'), /: HTML, /)
  await assert.rejects(render('README.md', '<!-- a --><b>\n'), /: HTML, /)
  await render('README.md', '<!-- begin -->\n')
})

test('the navigation comes from the index', () => {
  const groups = navigation(pages)
  assert.deepEqual(groups.map(({ text }) => text), ['Documentation', 'Tutorials', 'How-to guides', 'Reference', 'Explanation', 'Project'])
  assert.deepEqual(groups[0].items.map(({ text }) => text), ['Troubleshooting', 'Questions'])
  const commands = groups[3].items.find(({ link }) => link === '/docs/cli/index.html')
  assert.ok(commands.items.some(({ text, link }) => text === 'kubectl nodekeeper explain' && link === '/docs/cli/explain.html'))
  assert.throws(() => navigation([...pages, 'docs/how-to/unlisted.md']), /no navigation leads to docs\/how-to\/unlisted.md/)
})
