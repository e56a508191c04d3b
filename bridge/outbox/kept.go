package outbox

import "time"

func (o *Outbox) addItemLocked(sent sentItem) {
	c := o.openLocked()
	if c == nil {
		return
	}

	if len(c.items) == 0 {
		c.first = o.mu.numbered
	}

	sent.bytes = itemSize(&sent.Item) + len(sent.Leased)*leaseOverhead
	for i := range sent.Popped {
		sent.bytes += itemOverhead + itemSize(&sent.Popped[i])
	}

	c.items = append(c.items, sent)
	o.mu.numbered++
	o.config.Dispatcher.Keep(sent.Queue, sent.bytes)
	o.grewLocked(c, sent.bytes, itemOverhead+len(sent.subject))
}

func (o *Outbox) addReplyLocked(subject string) {
	if c := o.openLocked(); c != nil {
		c.replies = append(c.replies, subject)
		o.grewLocked(c, 0, replyOverhead+len(subject))
	}
}

// openLocked returns the chunk that replies are added to, nil after End.
func (o *Outbox) openLocked() *chunk {
	if o.mu.ended {
		return nil
	}

	if n := len(o.mu.chunks); n > 0 {
		if c := o.mu.chunks[n-1]; !c.asked && c.bytes < chunkBytes {
			return c
		}
	}

	c := o.mu.spare
	if o.mu.spare = nil; c == nil {
		c = &chunk{}
	}
	c.began = time.Now()
	o.mu.chunks = append(o.mu.chunks, c)

	// With the first chunk: the dispatcher must be there to take items back.
	if len(o.mu.chunks) == 1 {
		o.config.Dispatcher.Hold()
		signal(o.wake)
	}
	return c
}

// grewLocked counts what was added to a chunk. The bytes of items were counted as kept.
func (o *Outbox) grewLocked(c *chunk, items, rest int) {
	c.bytes += items + rest
	o.mu.bytes += items + rest
	o.config.Dispatcher.Keep(nil, rest)
	if o.mu.bytes > o.config.MaxBytes {
		o.deleteLocked(func(*chunk) bool { return o.mu.bytes > o.config.MaxBytes })
	}
	if o.mu.bytes > hurryBytes {
		signal(o.hurry)
	}
}

// deleteLocked deletes the chunks that are over, the oldest first.
func (o *Outbox) deleteLocked(over func(*chunk) bool) {
	before, kept := len(o.mu.chunks), o.mu.chunks[:0]
	for _, c := range o.mu.chunks {
		if over(c) {
			for i := range c.items {
				o.forgetLocked(c, &c.items[i])
			}
			o.mu.bytes -= c.bytes
			o.config.Dispatcher.Keep(nil, -c.bytes)
			o.mu.spare = c.recycle()
		} else {
			kept = append(kept, c)
		}
	}
	clear(o.mu.chunks[len(kept):])
	o.mu.chunks = kept

	if len(kept) == 0 && before > 0 {
		o.config.Dispatcher.Release()
	}
}

// forgetLocked counts the items of a reply no longer, and frees their memory.
func (o *Outbox) forgetLocked(c *chunk, s *sentItem) {
	c.bytes -= s.bytes
	o.mu.bytes -= s.bytes
	o.config.Dispatcher.Keep(s.Queue, -s.bytes)
	s.Content, s.bytes = Content{}, 0
}

// deleteBefore deletes the replies handed over before a time.
func (o *Outbox) deleteBefore(t time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deleteLocked(func(c *chunk) bool { return c.began.Before(t) })
}

// End deletes all replies, and makes the outbox keep no more of them.
func (o *Outbox) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.ended {
		return
	}
	o.mu.ended = true
	for _, c := range o.mu.chunks {
		o.mu.abandoned += len(c.replies) + len(c.items)
	}
	o.deleteLocked(func(*chunk) bool { return true })
	clear(o.mu.denials)
}

// Abandoned returns how many replies were still unconfirmed at the end.
func (o *Outbox) Abandoned() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.abandoned
}
