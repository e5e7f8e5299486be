"""The layouts of users' own images, one module each; :data:`podline.recipes.parts.LAYOUTS` names them."""
