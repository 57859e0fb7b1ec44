// Names for the tenant field, read when it is first used.
export function suggestTenants() {
  const field = document.getElementById("tenant");
  const names = document.getElementById("tenants");
  if (!field || !names) return;
  field.addEventListener("focus", async () => {
    const answer = await fetch(`${document.body.dataset.root}api/jobs/tenants/?limit=200`);
    if (!answer.ok) return;
    const { tenants } = await answer.json();
    names.replaceChildren(...tenants.map(({ name }) => Object.assign(document.createElement("option"), { value: name })));
  }, { once: true });
}
