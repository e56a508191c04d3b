package proof_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// Each row has the fault that books must find ("" if all is well) and a script: what clients asked
// for, one step a second, and what they were told. Type page explains the language. For example:
//
//	push                        item 0 is pushed
//	push 1 id=b                 item 1 is pushed, and gets the id b
//	lease 3 2 9                 item 0 is leased for nine seconds with the fence 3, as its second
//	                            delivery; of=1 makes it item 1
//	ack 3 with=2 lost           leases of items 0 and 2 with the fence 3 are acknowledged at once,
//	                            and no answer comes; "stale" would be the answer that one is lost
//	fetch lost; pop empty       a lease without an answer; a pop that finds nothing
//	places 1                    the consumer w may have one item outstanding
//	later 1m; left 0 1          a minute passes; in the end both items are in the store

// Books accept what may happen and find each kind of fault.
func TestBooks(t *testing.T) {
	testBooks(t, map[string]pageTest{
		"snoozed": {"",
			"push; lease 1 1 9; snooze 1; lease 3 1 9; pop lost; ack 3"},
		"old token":                     {"", "push; lease 1 1 0; lease 2 2 0; ack 1 stale; pop"},
		"push without answer":           {"", "push lost; pop"},
		"push without answer or effect": {"", "push lost; pop empty"},
		"acknowledged without answer":   {"", "push; lease 1 1 9; ack 1 lost"},
		"given back without answer":     {"", "push; lease 1 1 9; nak 1 lost; lease 3 2 9; ack 3"},
		"leased without answer":         {"", "push; fetch lost; lease 2 2 0; pop"},
		"frames without receiver":       {"", "push; fetch gone batch=2; lease 5 1 0; pop"},
		"popped without answer":         {"", "push; pop lost"},
		"stored again":                  {"", "push; pop lost; lease 1 1 0 as=other; left"},
		"waited":                        {"", "batch 1 2; take 0 1 batch=2 expires=1m"},
		"waited until the end":          {"", "take batch=2 empty expires=1us"},
		"batch without answer":          {"", "batch lost 1 2; left 0 1"},
		"batch without effect":          {"", "batch lost 1 2"},
		"given up":                      {"", "push; lease 1 1 9; term 1; dead 1; popdead"},
		"given up and left":             {"", "push; lease 1 1 9; term 1; left queue=jobs-dead"},
		"given up without answer":       {"", "push; lease 1 1 9; term 1 lost; popdead"},
		"not given up after all":        {"", "push; lease 1 1 0; term 1 lost; lease 2 2 0; pop"},

		"told too early":      {"gave up early", "take batch=2 empty expires=1m"},
		"too few too early":   {"gave up early", "batch 1; take 0 batch=2 expires=1m"},
		"waiter served twice": {"lost: 1", "batch 1 2; take 0 batch=2"},
		"no receiver, lost":   {"lost: 0", "push; pop gone"},
		"restored twice":      {"settled twice", "push; pop gone; pop; pop"},
		"restored elsewhere": {"stored again",
			"push; pop gone; lease 1 1 0 as=other; left"},
		"half a batch":              {"lost: 1", "batch lost 1 2; left"},
		"refused batch, half of it": {"refused, but left", "batch refused 1 2; left 1"},
		"batch in the wrong order":  {"wrong order", "batch 2 1; left 0 1"},
		"dead letter in both": {"given up and left",
			"push; lease 1 1 9; term 1; left; popdead"},
		"dead letter in both, popped": {"came back", "push; lease 1 1 9; term 1; pop"},
		"dead letter in both, leased": {"came back",
			"push; lease 1 1 0; term 1; lease 2 2 0; popdead"},
		"dead and then popped": {"in two queues", "push; lease 1 1 0; term 1 lost; dead 1; pop"},
		"dead and then leased": {"in two queues",
			"push; lease 1 1 0; term 1; dead 1; lease 2 2 0; popdead"},
		"dead and then acknowledged": {"a lost token counts",
			"push; lease 1 1 0; term 1 lost; dead 1; ack 1"},
		"given up twice":     {"a lost token counts", "push; lease 1 1 9; term 1; term 1; popdead"},
		"given up by nobody": {"given up by nobody", "push; lease 1 1 0; popdead"},
		"acknowledged, and dead": {"settled twice",
			"push; lease 1 1 9; term 1 lost; ack 1; popdead"},
		"dead letter with a history": {"of no known lease",
			"push; lease 1 1 0; term 1; dead 3; popdead"},

		"lease not put back":  {"lost: 0", "push; lease 1 1 0; ack 1 stale"},
		"invented":            {"invented", "pop"},
		"refused, but done":   {"refused, but done", "push refused; pop"},
		"refused, but left":   {"refused, but left", "push refused; left"},
		"acknowledged twice":  {"a lost token counts", "push; lease 1 1 9; ack 1; ack 1"},
		"popped and left":     {"settled and left", "push; pop; left"},
		"ack removes nothing": {"came back", "push; lease 1 1 0; ack 1; lease 2 2 0"},
		"popped and leased":   {"came back", "push; pop; lease 1 1 0"},
		"fencing off":         {"a lost token counts", "push; lease 1 1 0; lease 2 2 9; ack 1"},
		"token after nak":     {"a lost token counts", "push; lease 1 1 9; nak 1; extend 1; pop"},
		"two holders":         {"held by two", "push; lease 1 1 9; lease 2 2 9; ack 2"},
		"delay forgotten":     {"too early", "push; lease 1 1 9; nak 1 delay=1m; pop"},
		"given back twice": {"with one fence",
			"push; lease 1 1 9; nak 1; lease 3 2 9; lease 3 2 9; pop"},
		"old place wrong":    {"stored again", "push; lease 1 1 0; lease 2 2 0 as=other; left"},
		"history lost":       {"2 leases", "push; lease 1 1 0; lease 2 1 0; pop"},
		"snooze counts":      {"1 snoozes", "push; lease 1 1 0; snooze 1; lease 3 2 0; pop"},
		"a count in between": {"delivery 1 of", "push; lease 1 1 0; lease 2 1 0; lease 3 3 0; pop"},
		"false stale": {"said to be lost, and not",
			"push; lease 1 1 9; ack 1 stale; later 1m; pop"},
		"a lease of wrong length": {"is over at", "push; lease 1 1 9 wait=1m; ack 1"},
		"extended by too little": {"is over at",
			"push; lease 1 1 9; extend 1 wait=9s until=1; later 1m; pop"},
		"a negative one ignored": {"item 0: fence 2", "push; lease 1 1 0; nak 1; lease 2 2 0; pop"},

		"too large, stays": {"", "push; pop too-large max_bytes=100; pop"},
		"waited, and the next is too large": {"",
			"batch 1; take 0 batch=2 expires=1m cut=true size=100 max_bytes=100"},
		"too large, not acknowledged": {"came back",
			"push; lease 1 1 0; next 1 too-large max_bytes=100; lease 2 2 0"},
		"too large, gone": {"lost: 0", "push; pop too-large max_bytes=100"},
		"not limited":     {"not limited", "push; pop too-large; pop"},
		"too much":        {"more bytes than asked for", "push; pop size=101 max_bytes=100"},
	})
}

// Books know pushes with a delay, an expiry or a unique key, and requests that manage items and
// queues.
func TestBooksOfManagedItems(t *testing.T) {
	const (
		first     = "push 0 id=first unique=k; "
		second    = "push 1 id=second unique=k"
		duplicate = "push 1 id=first unique=k duplicate"
		brief     = "push 0 id=first unique=k ttl=1m; "
		buried    = "push; lease 1 1 0; term 1; dead 1; "
	)
	testBooks(t, map[string]pageTest{
		"delayed":                      {"", "push delay=1m; later 2m; pop"},
		"expired":                      {"", "push ttl=1m; later 2m"},
		"did not expire":               {"", "push ttl=1m; pop"},
		"removed unanswered":           {"", "push; remove lost"},
		"moved":                        {"", "push; move; lease 1 1 0 as=moved; left"},
		"moved unanswered":             {"", "push; move lost; lease 1 1 0 as=moved; left"},
		"not moved":                    {"", "push; move stale; pop"},
		"purged":                       {"", "push queue=jobs-purged; purge 1"},
		"purged unanswered":            {"", "push queue=jobs-purged; purge lost"},
		"redriven":                     {"", buried + "redrive 1; pop id=back"},
		"redriven unanswered":          {"", buried + "redrive lost; pop id=back"},
		"key used again":               {"", first + "pop; " + second + "; pop 1"},
		"duplicate":                    {"", first + duplicate + "; pop"},
		"popped unanswered with a key": {"", first + "pop lost; " + second + "; pop; pop 1"},
		"expired, and perhaps leased":  {"", brief + "fetch lost; later 2m; " + duplicate},

		"delayed, served at once": {"too early", "push delay=1m; pop"},
		"delayed, leased at once": {"too early", "push delay=1m; lease 1 1 0; left"},
		"delayed, lost":           {"lost: 0", "push delay=1m; later 2m"},
		"expired and served":      {"expired, and served", "push ttl=1m; later 2m; pop"},
		"expired early":           {"lost: 0", "push ttl=1m"},
		"dead letter expired": {"lost: 0",
			"push ttl=1m; lease 1 1 9; term 1; later 2m"},
		"removed and there":  {"settled twice", "push; remove; pop"},
		"removed and leased": {"came back", "push; remove; lease 1 1 0"},
		"removed twice":      {"gone, and found", "push; remove; remove"},
		"removed, token": {"a lost token counts",
			"push; lease 1 1 9; remove; extend 1"},
		"remove is in doubt, but not that": {"lost: 0", "push; remove empty"},
		"moved, old place":                 {"stored again", "push; move; pop"},
		"moved and both": {"settled twice",
			"push; move lost; pop; lease 1 1 0 as=moved; pop"},
		"moved and lost":       {"lost: 0", "push; move"},
		"moved, popped before": {"gone, and found", "push; pop; move"},
		"moved, old token": {"a lost token counts",
			"push; lease 1 1 0; move; ack 1"},
		"purged too many": {"only 0 can be gone",
			"push queue=jobs-purged; pop; purge 1"},
		"purged more": {"lost: 2",
			"push queue=jobs-purged; push 1 queue=jobs-purged; purge 1"},
		"redriven twice": {"settled twice",
			buried + "redrive 1; pop id=back; pop id=back"},
		"redriven and left": {"in two queues",
			buried + "redrive 1; pop id=back; popdead"},
		"redriven by nobody": {"only 0 were redriven",
			buried + "redrive; pop id=back"},
		"two with one key": {"two items with one unique key",
			first + second + "; pop; pop 1"},
		"a key lost": {"without its key", first + "pop unique="},
		"a key of a dead letter": {"has a unique key",
			"push; lease 1 1 9; term 1; popdead unique=k"},
		"a key that is not freed":           {"not there", first + "pop; " + duplicate},
		"a key that is not freed by expiry": {"not there", brief + "later 2m; " + duplicate},
		"duplicate, but pushed": {"refused, but done",
			first + duplicate + "; pop; pop 1"},
	})
}

// Books keep the accounts of items of the queue d-jobs, which have three deliveries.
func TestMortalBooks(t *testing.T) {
	const (
		push   = "push queue=d-jobs; "
		once   = push + "lease 1 1 0; later 1s; "
		twice  = once + "lease 2 2 0; later 1s; "
		thrice = twice + "lease 3 3 0; later 1s"
	)
	testBooks(t, map[string]pageTest{
		"all leases run out": {"", thrice + "; dead 1; popdead"},
		"given back three times": {
			"",
			push + "lease 1 1 9; nak 1; lease 3 2 9; nak 3; lease 5 3 9; nak 5; left " +
				"queue=jobs-dead",
		},
		"two replies lost": {"",
			once + "fetch lost queue=d-jobs; fetch lost queue=fifo-d-jobs; left queue=jobs-dead"},
		"done after all": {"", thrice + "; ack 3"},

		// Of another queue.
		"dead after two deliveries": {"died too early", twice + "fetch lost; left queue=jobs-dead"},
		"dead after a snooze": {"of no known lease",
			twice + "lease 3 3 9; snooze 3; dead 1; popdead"},
		"dead during the last lease": {"dead too early", twice + "lease 3 3 9; dead 1; popdead"},
		"one delivery more": {"delivered too often",
			thrice + "; lease 4 4 0; later 1s; pop"},
		"given back, and there":       {"came back", twice + "lease 3 3 9; nak 3; pop"},
		"gone":                        {"lost: 0", thrice},
		"dead in a queue without end": {"given up by nobody", "push; dead 1; popdead"},
		"back before the backoff": {"held by two",
			once + "lease 2 2 0; later -999ms; lease 3 3 0; pop"},
	})
}

// Items of the queue r-jobs that fail come back the later the more deliveries they had.
func TestBooksOfRetries(t *testing.T) {
	const (
		twice  = "push; lease 1 1 0; lease 2 2 0; "
		thrice = twice + "lease 3 3 0; "
		often  = thrice + "lease 4 4 0; lease 5 5 0; "
		dead   = "push; lease 1 1 9; term 1; dead 1; "
	)
	testBooksOf(t, "r-jobs", map[string]pageTest{
		"third lease over for 300 ms":  {"", thrice + "later -700ms; pop"},
		"fifth lease over for 600 ms":  {"", often + "later -400ms; pop"},
		"a dead letter has no backoff": {"", dead + "later -999ms; popdead"},

		"third lease over for 200 ms": {"held by two", thrice + "later -800ms; pop"},
		"fifth lease over for 400 ms": {"held by two", often + "later -600ms; pop"},
		"extension over for 200 ms": {"held by two",
			twice + "lease 3 3 9; extend 3 wait=0s; later -800ms; pop"},
		"extension without an answer over for 200 ms": {"held by two",
			twice + "lease 3 3 9; extend 3 lost; later -800ms; pop"},
		"held back for 300 ms, and there after 200 ms": {"too early",
			thrice + "nak 3 backoff=true delay=300ms; later -800ms; pop"},
	})
}

// Acknowledgements of several leases count for all of them or for none.
func TestBooksOfSeveralAcks(t *testing.T) {
	const (
		long    = "batch 1 2; hold 0 1 batch=2 for=9s; "
		short   = "batch 1 2; hold 0 1 batch=2 for=0s; "
		again   = short + "lease 2 2 1 of=1; "
		unheard = "ack 1 with=1 lost; "
	)
	testBooks(t, map[string]pageTest{
		"one is lost": {"",
			again + "ack 1 with=1 stale lost=[1]; ack 1; ack 2 of=1"},
		"without answer, and each again": {"",
			long + unheard + "ack 1 stale; ack 1 of=1 stale"},
		"without answer or effect, then one alone": {"", short + unheard + "ack 1 lost; left 1"},
		"next without end": {"",
			long + "push 2 id=third; next 1 with=1 got=2 batch=2 lost; ack 1 of=2"},
		"lost, and removed": {"", "push; lease 1 1 9; ack 1 stale; remove"},

		"half without answer, twice": {"lost: 1", short + unheard + "ack 1 with=1 unknown; left"},
		"half without answer, delivered again": {"lost: 0",
			short + unheard + "lease 2 2 1 of=1; ack 2 of=1"},
		"refused, and acknowledged": {"lost: 0", again + "ack 1 with=1 stale lost=[1]; ack 2 of=1"},
		"the lost one counts":       {"a lost token counts", again + "ack 1 with=1"},
		"the lost one is not named": {"not said to be lost",
			again + "ack 1 with=1 stale lost=[0]; left 0 1"},
		"none is named": {"none of the leases", short + "ack 1 with=1 stale; left 0 1"},
		"another one is named": {"said to be lost, and not",
			long + "ack 1 with=1 stale lost=[0]; ack 1; ack 1 of=1"},
		"named, and left": {"said to be lost, and not",
			long + "ack 1 with=1 stale lost=[0]; left 0 1"},
		"half counts, the other is refused": {"lost: 0", long + "ack 1 with=1 refused; left 1"},
		"leased though refused": {"of no known lease",
			again + "next 1 with=1 stale lost=[1]; lease 3 3 -1; left 0 1"},
	})
}

// Of two moves at once, both answered after an acknowledgement of several leases whose outcome is
// unknown, books do not know which was last. That proves nothing against the acknowledgement.
func TestBooksOfMovesUnderWay(t *testing.T) {
	b := books.New(0)
	second := int64(time.Second)
	at := func(n int64, op books.Operation) *books.Operation {
		op.Queue, op.Call, op.Return = "jobs", n*second, n*second+1
		return &op
	}
	run := func(op *books.Operation) { b.End(op, b.Begin(op)) }

	for _, value := range []string{"0", "1"} {
		b.New()
		run(at(1, books.Operation{Kind: books.Push, Value: value, ID: value, Outcome: books.Done}))
	}
	one := at(2, books.Operation{
		Kind: books.Move, Value: "0", ID: "0", Moved: "one", Outcome: books.Done,
	})
	two := at(2, books.Operation{
		Kind: books.Move, Value: "0", ID: "one", Moved: "two", Outcome: books.Done,
	})
	ofOne, ofTwo := b.Begin(one), b.Begin(two)

	lease := at(3, books.Operation{Kind: books.LeaseMin, Batch: 2, Outcome: books.Done})
	lease.Wait = 9 * second
	for value, place := range map[string]string{"0": "two", "1": "1"} {
		lease.Items = append(lease.Items, books.Item{
			Value: value, ID: place, Fence: 1, Deliveries: 1, Until: lease.Call + lease.Wait,
		})
	}
	run(lease)
	run(at(4, books.Operation{
		Kind: books.Ack, Value: "0", ID: "two", Fence: 1, Outcome: books.Unknown,
		Also: []books.Item{{Value: "1", ID: "1", Fence: 1}},
	}))
	one.Return, two.Return = 5*second, 5*second
	b.End(two, ofTwo)
	b.End(one, ofOne)

	balance, err := b.Close(60_000)
	must(t, err)
	if balance.Halves > 0 {
		t.Errorf("%d items are missing, though all may be acknowledged", balance.Halves)
	}
}

// Books know how many items of a group are leased for certain, and how often items are delivered.
func TestBooksOfLimits(t *testing.T) {
	const (
		two   = "push group=x id=a; push 1 group=x id=b; "
		limit = "limit 1; " + two
		rate  = "limit 0 rate=2/20s; " + two
		group = "limit 0 rate_per_group=2/20s; " + two
	)
	testBooks(t, map[string]pageTest{
		"acknowledged, maybe": {"",
			limit + "lease 1 1 9; ack 1 lost; lease 1 1 9 of=1; ack 1 of=1"},
		"removed": {"", limit + "lease 1 1 9; remove; lease 1 1 9 of=1; ack 1 of=1"},
		"over":    {"", limit + "lease 1 1 1; later 1s; lease 1 1 9 of=1; ack 1 of=1; pop"},
		"recorded late": {"",
			limit + "lease 2 2 9; lease 1 1 -5; ack 2; lease 1 1 9 of=1; ack 1 of=1"},
		"extended too late": {
			"",
			limit + "lease 1 1 1; later 1s; lease 1 1 30 of=1; extend 1 wait=20s; " +
				"ack 1; ack 1 of=1",
		},
		"of several groups": {
			"",
			"limit 1; push group=x id=a; push 1 group=y id=b; lease 1 1 9; lease 1 1 9 of=1; ack " +
				"1; ack 1 of=1",
		},
		"and a token later":    {"", rate + "pop; lease 1 1 0 of=1; later 9s; pop 1"},
		"within that of group": {"", group + "push 2 group=y id=c; pop; pop 1; pop 2"},

		"extended, and two": {"too many leased",
			limit + "lease 1 1 5; extend 1 wait=20s; later 6s; lease 1 1 9 of=1; " +
				"ack 1; ack 1 of=1"},
		"more than the rate": {"too many deliveries",
			rate + "pop; lease 1 1 0 of=1; later 7s; pop 1"},
		"more of a group": {"too many deliveries",
			group + "pop; lease 1 1 0 of=1; later 7s; pop 1"},
		"a burst after tokens": {
			"too many deliveries",
			rate + "lease 1 1 0; later 9s; lease 2 2 0; later 9s; lease 1 1 0 of=1; lease 2 2 0 " +
				"of=1; pop; pop 1",
		},
	})
}

// Books know what consumers of the JetStream face have outstanding.
func TestBooksOfPulls(t *testing.T) {
	const (
		two    = "push id=a; push 1 id=b; "
		first  = "lease 1 1 9 consumer=w; "
		second = "lease 1 1 9 of=1 consumer=w; "
		both   = "ack 1; ack 1 of=1"
	)
	testBooks(t, map[string]pageTest{
		"of two consumers": {"",
			"places 1; " + two + first + "lease 1 1 9 of=1 consumer=min; " + both},
		"acknowledged": {"", "places 1; " + two + first + "ack 1 lost; " + second + both},
		"extended, not its place": {
			"",
			"places 1; " + two + "lease 1 1 1 consumer=w; extend 1 wait=20s; later 2s; " +
				second + both,
		},
		"extended without an end": {"",
			"push; lease 1 1 2; extend 1 wait=9s until=0 jetstream=true; later 10s; pop"},
		"returned, because too big": {"",
			"push; fetch too-large max_bytes=9 jetstream=true; lease 3 1 9; ack 3"},

		"one place, two items": {"too many leased", "places 1; " + two + first + second + both},
		"extended and held by two": {"held by two",
			"push; lease 1 1 2; extend 1 wait=20s until=0 jetstream=true; later 5s; pop"},
		"a fence of a pull": {"of no known lease",
			"push; fetch empty jetstream=true; lease 2 1 9; ack 2"},
		"acknowledged for another": {"lost: 1",
			"batch 1 2; hold 0 1 batch=2 for=0s; ack 1 jetstream=true of=0; left 0"},
	})
}
