package testenv_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv"
)

// The environment works on every engine, and both its server and its bridge
// can be stopped and started.
func TestEnv(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine})
		url := e.NATS.URL()

		for i := range 2 {
			jobs := client.New(e.Conn, client.WithTimeout(testenv.Patience)).PriorityQueue("jobs")
			if _, err := jobs.Push(t.Context(), 0, []byte("x")); err != nil {
				t.Fatal(err)
			}

			e.NATS.Restart()
			if e.NATS.URL() != url {
				t.Errorf("the address is now %s, was %s", e.NATS.URL(), url)
			}

			e.Bridge.WaitReady()
			e.Bridge.MustStop()

			e.Bridge = e.StartBridge()
			e.Bridge.WaitReady()
			q, err := e.Keyspace.PriorityQueue("jobs")
			if err != nil {
				t.Fatal(err)
			}

			n, err := kv.ReadTransact(t.Context(), e.DB, q.Len)
			if err != nil || n != int64(i+1) {
				t.Errorf("%d items, %v: want %d", n, err, i+1)
			}
			// Until the client has noticed that its server was away.
			testenv.Eventually(t, func() error { return e.Conn.FlushTimeout(testenv.Patience) })
		}
	})
}
