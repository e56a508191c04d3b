package dispatch

// chain is a doubly linked list through the links of its elements, so it allocates nothing.
type chain[T any, P linked[T]] struct {
	first, last *T
	n           int
}

// linked is a pointer to something that embeds links.
type linked[T any] interface {
	*T
	place() *links[T]
}

type links[T any] struct{ prev, next *T }

func (s *links[T]) place() *links[T] { return s }

func (c *chain[T, P]) push(e *T) {
	at := P(e).place()
	at.prev, at.next = c.last, nil
	if c.last == nil {
		c.first = e
	} else {
		P(c.last).place().next = e
	}
	c.last = e
	c.n++
}

func (c *chain[T, P]) remove(e *T) {
	at := P(e).place()
	if at.prev == nil {
		c.first = at.next
	} else {
		P(at.prev).place().next = at.next
	}
	if at.next == nil {
		c.last = at.prev
	} else {
		P(at.next).place().prev = at.prev
	}
	at.prev, at.next = nil, nil
	c.n--
}
