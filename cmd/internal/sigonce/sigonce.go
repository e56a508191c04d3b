// Package sigonce distinguishes one request to stop from two.
package sigonce

import "time"

// Window is how long further signals count as part of the first. A single Ctrl-C, timeout(1) or
// closing of a terminal often arrives as several signals, because programs signal a child and then
// its process group.
const Window = time.Second
