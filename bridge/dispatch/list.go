package dispatch

// linkedList is a doubly linked list through the links of its elements, so it allocates nothing.
type linkedList[T any, P linked[T]] struct {
	first, last *T
	n           int
}

// linked is a pointer to something that embeds links.
type linked[T any] interface {
	*T
	place() *links[T]
}

type links[T any] struct{ prev, next *T }

func (e *links[T]) place() *links[T] { return e }

func (s *linkedList[T, P]) push(e *T) {
	at := P(e).place()
	at.prev, at.next = s.last, nil
	if s.last == nil {
		s.first = e
	} else {
		P(s.last).place().next = e
	}
	s.last = e
	s.n++
}

func (s *linkedList[T, P]) remove(e *T) {
	at := P(e).place()
	if at.prev == nil {
		s.first = at.next
	} else {
		P(at.prev).place().next = at.next
	}
	if at.next == nil {
		s.last = at.prev
	} else {
		P(at.next).place().prev = at.prev
	}
	at.prev, at.next = nil, nil
	s.n--
}
