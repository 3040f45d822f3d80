// Package prose shows what the rules of comments find: nobody heeds it.
package prose
