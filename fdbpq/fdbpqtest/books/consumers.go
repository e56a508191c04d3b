package books

// A pull through the JetStream face is a lease, and is acknowledged like one, with these
// differences:
//
//   - A pull may get its items in several transactions (Spread). Then the model takes it for as
//     many leases of one item, which all begin with the request.
//   - A pull that waits and then ends with 408 does not say that there was nothing: while the store
//     was away, nobody looked. A pull that does not wait and ends with 404 says so.
//   - With MaxBytes, an item that turns out too large goes back. That takes two fences that no
//     client hears of.
//   - An acknowledgement is answered only if it counted, so one without an answer is of unknown
//     outcome. An answer to Extend does not say until when the lease is.
//   - +NXT is two operations that need not both happen: an Ack without an answer, and a pull.
//
// A consumer may limit how many items are delivered and not acknowledged. An acknowledgement frees
// a place when it arrives. So a place is taken for certain from the time that the client has the
// item until an acknowledgement is sent, or until the lease that the client was told of is over.
// Only one bridge counts the places, and it forgets them when it ends.

// LimitConsumer says how many items a consumer may have outstanding, before any operation.
func (b *Books) LimitConsumer(queue, name string, most int) {
	b.limits.consumers[line{queue: queue, consumer: name}] = most
}

// limitsLeases reports whether anything limits the leases of a queue.
func (l *limits) limitsLeases(queue string) bool {
	return l.queues[queue].maxLeased > 0 || len(l.consumers) > 0
}

// returned returns how many items a pull may have got and returned without telling anybody.
func (o *Operation) returned() int {
	if o.JetStream && o.MaxBytes > 0 && o.Kind.Leases() {
		return 1
	}
	return 0
}

// First reports whether no acknowledgement of the newest lease of the item was sent before.
func (i Intent) First() bool { return i.fresh == mayAck }

// Acknowledged reports whether only an acknowledgement whose outcome is unknown can have removed
// its item. Close was called before.
func (b *Books) Acknowledged(op *Operation) bool {
	e, unlock := b.entry(op.Value)
	defer unlock()
	const others = settled | vanishing | mayBury | buried | mayRemove
	newest := e.id == hash(op.ID) && int64(e.fence) == op.Fence
	return newest && b.takes.Load() == 0 && e.marks&(mayAck|others) == mayAck
}
