// Package sigonce tells one request to stop from two.
package sigonce

import "time"

// Window is how long further signals count as part of the first. A single
// Ctrl-C or timeout(1) often arrives as several, because programs signal a child
// and then its process group, and so does a terminal that is closed.
const Window = time.Second
