package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// poolSize is how many connections the clients of PostgreSQL share: several for each processor, so
// that transactions can share a sync.
const poolSize = 16

// postgreSQL keeps a queue in a table with an index. A lease is an open transaction, which ends
// with the connection.
func postgreSQL() Peer {
	program, missing := find("postgres", "/usr/lib/postgresql/*/bin")
	initdb, _ := find("initdb", filepath.Dir(program))
	return Peer{
		Name: "PostgreSQL", Missing: missing,
		Start: func(tb testing.TB, folder string) *Server {
			data, notRoot := filepath.Join(folder, "data"), asPostgres(tb, folder)
			if _, err := os.Stat(data); err != nil {
				cmd := harness.Command(initdb, "-D", data,
					"-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale")
				notRoot(cmd)
				if out, err := cmd.CombinedOutput(); err != nil {
					tb.Fatalf("%v: can the user postgres reach TMPDIR?\n%s", err, out)
				}
			}

			port := freePort(tb)
			s := start(tb, port, notRoot, program, "-D", data,
				"-c", "listen_addresses=127.0.0.1", "-c", "port="+port,
				"-c", "unix_socket_directories=", "-c", "fsync=on",
				"-c", "synchronous_commit=on", "-c", "shared_buffers=1GB")
			s.signal = syscall.SIGINT // At SIGTERM it would wait for clients.
			url := "postgres://bench@" + s.address + "/postgres"
			s.await(func() error {
				c, err := pgx.Connect(tb.Context(), url)
				if err != nil {
					return err
				}
				return c.Close(tb.Context())
			})

			s.Connect = func(clients, _, priorities int) []*Client {
				config := fmt.Sprintf("%s?pool_max_conns=%d", url, poolSize)
				pool, err := pgxpool.New(tb.Context(), config)
				must(tb, err)
				s.onStop(pool.Close)
				table := queueName(priorities)
				for _, sql := range []string{
					"CREATE TABLE IF NOT EXISTS %[1]s " +
						"(id bigserial PRIMARY KEY, priority int NOT NULL, value bytea NOT NULL)",
					"CREATE INDEX IF NOT EXISTS %[1]s_order ON %[1]s (priority, id)",
					"ANALYZE %[1]s", // A database in use has statistics.
				} {
					_, err := pool.Exec(tb.Context(), fmt.Sprintf(sql, table))
					must(tb, err)
				}

				return slices.Repeat([]*Client{postgresClient(pool, table)}, clients)
			}

			return s
		},
	}
}

// asPostgres makes a command run as the user postgres if it would run as root, which PostgreSQL
// refuses.
func asPostgres(tb testing.TB, folder string) func(*exec.Cmd) {
	if os.Geteuid() != 0 {
		return func(*exec.Cmd) {}
	}

	u, err := user.Lookup("postgres")
	must(tb, err)
	uid, err := strconv.Atoi(u.Uid)
	must(tb, err)
	gid, err := strconv.Atoi(u.Gid)
	must(tb, err)
	must(tb, os.Chown(folder, uid, gid))

	return func(cmd *exec.Cmd) {
		cmd.Dir = folder // It cannot be in a folder that it must not read.
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
}

func postgresClient(pool *pgxpool.Pool, table string) *Client {
	first := fmt.Sprintf("FROM %s ORDER BY priority, id LIMIT $1 FOR UPDATE SKIP LOCKED", table)
	remove := fmt.Sprintf("DELETE FROM %s WHERE id = ANY($1)", table)
	const pop = "DELETE FROM %s WHERE id = ANY(ARRAY(SELECT id %s)) RETURNING value"
	popMany := fmt.Sprintf(pop, table, first)

	type item struct {
		ID    int64
		Value []byte
	}

	return &Client{
		Push: postgresPush(pool, table),
		Pop: func(ctx context.Context, n int) ([][]byte, error) {
			rows, err := pool.Query(ctx, popMany, n)
			if err != nil {
				return nil, err
			}

			popped, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			if err != nil {
				return nil, err
			}

			return values(popped, func(value []byte) []byte { return value })
		},
		Work: func(ctx context.Context, n int) (done [][]byte, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				rows, err := tx.Query(ctx, "SELECT id, value "+first, n)
				if err != nil {
					return err
				}

				items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
				if err != nil {
					return err
				}
				if done, err = values(items, func(i item) []byte { return i.Value }); err != nil {
					return err
				}

				ids := make([]int64, len(items))
				for i := range items {
					ids[i] = items[i].ID
				}

				_, err = tx.Exec(ctx, remove, ids)
				return err
			})

			return done, err
		},
	}
}

// postgresPush has a statement for one item, and one for many.
func postgresPush(pool *pgxpool.Pool, table string) func(context.Context, []Item) error {
	insert := fmt.Sprintf("INSERT INTO %s (priority, value) VALUES ($1, $2)", table)
	insertMany := fmt.Sprintf(
		"INSERT INTO %s (priority, value) SELECT * FROM unnest($1::int[], $2::bytea[])", table)
	return func(ctx context.Context, items []Item) error {
		if len(items) == 1 {
			_, err := pool.Exec(ctx, insert, items[0].Priority, items[0].Value)
			return err
		}

		priorities, values := make([]int, len(items)), make([][]byte, len(items))
		for i, item := range items {
			priorities[i], values[i] = item.Priority, item.Value
		}

		_, err := pool.Exec(ctx, insertMany, priorities, values)
		return err
	}
}
