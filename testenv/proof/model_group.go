package proof

// Queues may limit how many items of a group are leased at a time. Pops and leases pass over the
// items of a group that is at its limit, and peeks do not.

// mustServe reports whether an item is served to the request of a step, if it is answered then and
// no other item comes before.
func (m *queueModel) mustServe(s *state, p *step, item int, answered int64) bool {
	if !m.mustBeThere(item, s.items[item], p.call, answered) {
		return false
	}
	_, most := m.leased(s, p, item, answered)
	return m.maxLeased == 0 || most < m.maxLeased
}

// mayServe reports whether an item can be served to the request of a step.
func (m *queueModel) mayServe(s *state, p *step, item int) bool {
	if !m.mayBeThere(item, s.items[item], p.call, p.end) {
		return false
	}
	least, _ := m.leased(s, p, item, p.end)
	return m.maxLeased == 0 || least < m.maxLeased
}

// leased returns how many items of the group of an item count as leased for the request of a step,
// if it is answered then, at least and at most. Which those are may depend on the bridge.
func (m *queueModel) leased(s *state, p *step, item int, answered int64) (least, most int) {
	if m.maxLeased == 0 || m.groups[item] == "" || p.peek {
		return 0, 0
	}

	for other, i := range s.items {
		if i.status != leased || m.groups[other] != m.groups[item] {
			continue
		}
		if answered < m.holds[i.hold].from {
			least++
		}
		if p.call <= m.holds[i.hold].by {
			most++
		}
	}

	return least, most
}

// Pops and leases return fewer items than there are if the next one exceeds MaxBytes, or if it
// finds no room in their transaction beside what else that returns or moves. The latter depends on
// requests of others, so the model only checks that there was a next item.

// headerBytes is more than the headers have that count towards MaxBytes besides the value.
const headerBytes = 1000

// isCut reports whether there can be a next item that exceeds the rest of MaxBytes, or that found
// no room.
func (m *queueModel) isCut(s *state, p *step) bool {
	mayLackRoom := len(p.served) > 0
	for n := range m.ids {
		i := m.order(n, p.back)
		if !m.mayServe(s, p, i) {
			continue
		}
		if mayLackRoom || m.sizes[i]+headerBytes > p.left {
			return true
		}
		if m.mustServe(s, p, i, p.end) {
			return false
		}
	}

	return false
}
