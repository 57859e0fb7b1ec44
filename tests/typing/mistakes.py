"""What a user may get wrong: every marked line is an error to type checkers, and no other is."""

from __future__ import annotations

from fairlane import Fairlane, Handle, Retry, step, wait_for

app = Fairlane("memory://")


@app.task
def add(a: int, b: int = 2) -> int:
    return a + b


@app.task(queue="mail")
async def send(user_id: int, *, subject: str = "") -> str:
    return f"{user_id} {subject}"


add.enqueue("1")  # E: ill-typed argument
add.enqueue()  # E: missing argument
add.enqueue(1, c=3)  # E: unknown argument
add.enqueue(1, 2, 3)  # E: too many arguments
send.enqueue(1, "Hi")  # E: keyword-only argument given by place
send.bind(user_id=None)  # E: ill-typed argument of bind
send.using(tenant=1).enqueue(user="x")  # E: unknown argument after using
send.using(tennant=1)  # E: unknown option
send.using(priority=1.5)  # E: ill-typed option
send.using(on_duplicate="ignore")  # E: not one of the choices
app.task(retry=3)  # E: ill-typed task option
app.task(que="mail")  # E: unknown task option
app.task(batch="many")  # E: ill-typed batch
app.task(batch=5)(add)  # E: a batch task takes a list
Retry(max_attempts="5")  # E: ill-typed policy
Fairlane("memory://", capacity="many")  # E: ill-typed setting
Fairlane("memory://", colour="red")  # E: unknown setting
Fairlane("memory://", queues={"mail": 3})  # E: a queue is a policy or a table
Fairlane("memory://", queues=["mail"])  # E: queues are a table
Retry(attempts=3)  # E: unknown figure
add.using(key=42)  # E: a key is text
add.using(on_conflict="drop")  # E: not a policy
app.task(key=42)  # E: a key is made of parameters
app.task(key="a", ordered="yes")  # E: ill-typed order
app.limits.keys(limit="10")  # E: ill-typed limit
add.delay(1)  # E: what other systems call it
add.bind(1).enqueue()  # E: a call is enqueued with others
app.enqueue(add)  # E: a task enqueues itself
app.enqueue_many([add, add])  # E: calls are expected, made by bind
app.enqueue_many(add.bind(1))  # E: a list of calls is expected
text: str = add.enqueue(1).result()  # E: the result is an int
handle: Handle[int] = send.enqueue(1)  # E: the handle is of str
number: int = send(1)  # E: calling an async task gives a coroutine
app.jobs.list(status="done")  # E: not a status
app.jobs.list(limit="10")  # E: ill-typed limit
app.jobs.cancel(5)  # E: a job is not named by a number
app.dead_letters.discard("x")  # E: a dead letter is not named by text
app.task(breaker=5)  # E: a breaker is a name or a Breaker
app.queues.pause(None)  # E: what is paused has a name
app.queues.drain("mail", timeout="soon")  # E: ill-typed timeout
app.schedules.add("daily", add, cron=5)  # E: ill-typed cron line
app.schedules.add("daily", add, every="10s")  # E: an interval is seconds or a timedelta
app.task(every="10s")  # E: an interval is seconds or a timedelta
app.schedules.add("daily", add, every=10, ends_at="tomorrow")  # E: an end is a datetime
app.limits.set(queue="mail", speed=5)  # E: unknown figure
app.jobs.act_on_many("explode", [])  # E: not a verb
app.jobs.claimed("token").fail("no", error_class="fatal")  # E: not an error class
app.cancel("id")  # E: verbs stand behind their noun
page: int = app.jobs.list()  # E: a listing is a page
app.resource(scope="tenant")  # E: not a scope
app.jobs.on_enqueue(lambda a, b: None)  # E: a hook takes one draft
app.testing("eager")  # E: not a mode
app.testing().assert_enqueued("send")  # E: a task is expected, not its name
app.before_job(lambda: None)  # E: a hook takes the job
app.around_job(lambda job: None)  # E: a hook around yields
send.on_failure(lambda job: None)  # E: a hook takes the job and its failure
flow = app.workflow("onboard")
summed = flow.add(add.bind(1))
flow.add(add)  # E: a call is expected, made by bind
flow.add(add.bind(1), after=["add"])  # E: a node is not named by text here
flow.add(add.bind(1), on_failure="ignore")  # E: not one of the choices
flow.chain(add.bind(1), len)  # E: a call or a task is expected
flow.gather(add.bind(1), into=add)  # E: a list of calls is expected
flow.gather([add.bind(1)])  # E: it has no task that takes the results
app.group(add.bind(1)).then("total")  # E: a task is expected, not its name
app.workflow("import", running="3")  # E: ill-typed figure
app.map(add.bind(1))  # E: a task is expected, not a call
app.map(add).bind(7)  # E: it takes a list
flow.add(add.bind(flow.add(send.bind(1)).result))  # E: its parent returns text
name: str = flow.enqueue().result(summed)  # E: the node returns an int
title: str = flow.enqueue().result(add)  # E: the task returns an int
paid: int = step("send", lambda: "x")  # E: the step returns text
step("add", add, "1")  # E: ill-typed argument of a step
wait_for("paid")  # E: a wait has a timeout


async def use() -> None:
    await send.aenqueue("7")  # E: ill-typed argument of the async twin
    await app.jobs.cancel("id")  # E: the sync verb of a group is not awaited
    await app.jobs.acancel(5)  # E: ill-typed argument of the async twin of a group
    await add.enqueue(1)  # E: the sync verb is not awaited
    wrong: int = await (await send.aenqueue(7)).aresult()  # E: the result is text
    print(wrong)
