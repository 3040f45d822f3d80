// Package service holds what nodekeeper's services share beyond package daemon: the settings that say
// what they keep, caches that hold no more than that, and their ring.
package service
