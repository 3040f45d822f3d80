// Package browser tests the page of kubectl nodekeeper ui in a real browser: Chromium, without a window.
// It is a module of its own, as nothing else needs what drives a browser. See make browser-test.
package browser
