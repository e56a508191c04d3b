// Package signal wakes a goroutine that waits until something changes.
package signal

// To wakes the reader of a channel with room for one element.
func To(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has not read the last one
	}
}
