// Package pages compares the sharder's pages with its API and its tests.
package pages
