package fdbpq

// Removed returns how many items batches have removed so far although no operation took or removed
// them. It counts each item once, also if the store did not say whether a batch committed, as soon
// as that is settled. It may be called at any time.
func (b *Batcher) Removed() Removed {
	return b.removed.Sum()
}
